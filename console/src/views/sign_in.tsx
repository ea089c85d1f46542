// Signs in with an access key.

import { useState } from "preact/hooks";
import { type Session, call } from "../api";
import { Notice, message } from "../parts";

export function SignIn({ said, signedIn }: { said: string; signedIn: (session: Session) => void }) {
  const [error, setError] = useState("");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const token = String(new FormData(form).get("token") ?? "").trim();
    try {
      signedIn(await call<Session>("POST", "session", undefined, { Authorization: `Bearer ${token}` }));
    } catch (problem) {
      setError(message(problem));
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
