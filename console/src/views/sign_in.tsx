// Signs in with an access key.

import { useState } from "preact/hooks";
import { Refused, type Session, Unreachable, call } from "../api";
import { Notice, message } from "../parts";

const UNKNOWN = "No access key of this server has this token. Check that you copied all of it, and nothing else.";

/** Why signing in failed, for people. */
function human(problem: unknown): string {
  if (problem instanceof Unreachable) return "The server does not answer. Check that it runs, and try again.";
  if (problem instanceof Refused && problem.status === 401) return UNKNOWN;
  if (problem instanceof Refused && problem.status === 403) return "This key may only ask for decisions. Sign in with a key with the role read or admin.";
  return message(problem);
}

export function SignIn({ said, signedIn }: { said: string; signedIn: (session: Session) => void }) {
  const [error, setError] = useState("");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const token = String(new FormData(form).get("token") ?? "").trim();
    // A browser sends no other characters in a header.
    if (!/^[\x21-\x7e]+$/.test(token)) return setError(UNKNOWN);
    try {
      signedIn(await call<Session>("POST", "session", undefined, { Authorization: `Bearer ${token}` }));
    } catch (problem) {
      setError(human(problem));
    }
  };
  return (
    <main class="sign-in">
      <h1>tollgate</h1>
      <form onSubmit={submit}>
        <label>
          Access key
          <input name="token" type="password" autocomplete="current-password" required autoFocus maxLength={1024} />
        </label>
        <button type="submit" class="primary">
          Sign in
        </button>
        <p class="dim">A key with the role <b>read</b> shows everything; <b>admin</b> may also change it.</p>
      </form>
      {(error || said) && <Notice tone={error ? "bad" : "plain"}>{error || said}</Notice>}
    </main>
  );
}
