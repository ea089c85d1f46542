// The page: signs in, shows one view, and keeps the status of the server in sight.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused, type Session, call, get, onSignedOut } from "./api";
import { live, useLive } from "./live";
import { Notice, SessionContext, Text, link, message } from "./parts";
import { clock, decoded } from "./words";
import { Changes } from "./views/changes";
import { DecisionView } from "./views/decision";
import { Guards } from "./views/guards";
import { KeyView } from "./views/key";
import { Mail } from "./views/mail";
import { Now } from "./views/now";
import { Rules } from "./views/rules";
import { SignIn } from "./views/sign_in";
import "./style.css";

/** Views by the first part of the fragment, in the order of the bar. */
const VIEWS: [string, string][] = [
  ["now", "Now"],
  ["key", "Key"],
  ["decision", "Decision"],
  ["rules", "Rules"],
  ["guards", "Guards and lists"],
  ["mail", "Mail"],
  ["changes", "Changes"],
];

/** Views of a key that belongs to a tenant. The others show the whole server. */
const OF_TENANT = ["key", "decision", "mail"];

const viewsOf = (session: Session) =>
  VIEWS.filter(([name]) => (name !== "mail" || session.relay) && (session.tenant === null || OF_TENANT.includes(name)));

/** The view to begin with. */
const home = (session: Session) => (session.tenant === null ? "now" : "key");

interface Place {
  view: string;
  /** The second part of the fragment, decoded. */
  about: string;
}

function place(): Place {
  const [view = "", ...rest] = location.hash.replace(/^#\/?/, "").split("/");
  return { view: VIEWS.some(([name]) => name === view) ? view : "now", about: decoded(rest.join("/")) };
}

function Page() {
  const [session, setSession] = useState<Session | null>(null);
  const [asked, setAsked] = useState(false);
  const [said, setSaid] = useState("");
  const [at, setAt] = useState(place());

  const look = async () => {
    try {
      setSession(await get<Session>("session"));
      setSaid("");
    } catch (error) {
      if (!(error instanceof Refused && error.status === 401)) setSaid(message(error));
      setSession(null);
    }
    setAsked(true);
  };
  useEffect(() => {
    const moved = () => setAt(place());
    window.addEventListener("hashchange", moved);
    onSignedOut((detail) => {
      live.stop();
      setSession(null);
      setSaid(detail);
    });
    void look();
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  useEffect(() => {
    if (session?.tenant === null) live.start();
    return () => live.stop();
  }, [session]);

  if (!asked) return null;
  if (!session) return <SignIn said={said} signedIn={setSession} />;
  const signOut = async () => {
    await call("DELETE", "session").catch(() => undefined);
    setSession(null);
    setSaid("You are signed out.");
  };
  const views = viewsOf(session).map(([name]) => name);
  const view = views.includes(at.view) ? at.view : home(session);
  return (
    <SessionContext.Provider value={session}>
      <Bar session={session} view={view} signOut={signOut} />
      <Banner />
      <main id="view" tabIndex={-1}>
        {view === "now" && <Now />}
        {view === "key" && <KeyView key={at.about} about={at.about} />}
        {view === "decision" && <DecisionView key={at.about} about={at.about} />}
        {view === "rules" && <Rules />}
        {view === "guards" && <Guards />}
        {view === "mail" && <Mail about={at.about} />}
        {view === "changes" && <Changes />}
      </main>
    </SessionContext.Provider>
  );
}

function Bar({ session, view, signOut }: { session: Session; view: string; signOut: () => void }) {
  const { status, link: connected } = useLive();
  const search = useRef<HTMLInputElement>(null);
  const views = viewsOf(session);
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      const typing = event.target instanceof Element && event.target.closest("input, select, textarea, dialog");
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const chosen = views[Number(event.key) - 1];
      if (event.key === "/") {
        event.preventDefault();
        search.current?.focus();
      } else if (chosen) {
        location.hash = link(chosen[0]);
      }
    };
    window.addEventListener("keydown", key);
    return () => window.removeEventListener("keydown", key);
  });
  const find = (event: SubmitEvent) => {
    event.preventDefault();
    const text = search.current?.value.trim();
    if (text) {
      location.hash = link("key", text);
      search.current?.blur();
    }
  };
  const state = connected === "lost" ? "lost" : status?.store.state === "degraded" || status?.relay_fault ? "degraded" : "up";
  const words = { lost: "no connection", degraded: "degraded", up: connected === "live" ? "live" : "up" };
  return (
    <header>
      <a class="skip" href="#view" onClick={(event) => { event.preventDefault(); document.getElementById("view")?.focus(); }}>
        Skip to the view
      </a>
      <a class="name" href={link(home(session))}>tollgate</a>
      <nav aria-label="Views">
        {views.map(([name, title], index) => (
          <a key={name} href={link(name)} aria-current={view === name ? "page" : undefined} title={`key ${index + 1}`}>
            {title}
          </a>
        ))}
      </nav>
      <form role="search" onSubmit={find}>
        <input ref={search} type="search" placeholder="user, address, key   /" aria-label="Look up a key" maxLength={4096} />
      </form>
      {session.tenant === null && (
        <span class={`state ${state}`} title="The state of this node">
          {words[state]}
        </span>
      )}
      {session.key !== null && (
        <span class="who">
          <Text>{session.key}</Text> <span class="dim">{session.role}</span>{" "}
          <button type="button" onClick={signOut}>
            Sign out
          </button>
        </span>
      )}
    </header>
  );
}

/** What is wrong now, above every view. */
function Banner() {
  const { status, link: connected, lostAt } = useLive();
  if (connected === "lost") {
    return (
      <Notice tone="bad">
        No connection to the server since {clock(Math.floor(lostAt / 1000))}. The page shows the data of that time and keeps reconnecting.
      </Notice>
    );
  }
  return (
    <>
      {status?.store.state === "degraded" && (
        <Notice tone="bad">
          <b>The shared store cannot be used.</b> Each rule does what its <code>on_outage</code> says. Cause:{" "}
          <Text>{status.store.cause ?? status.store.reason}</Text>
        </Notice>
      )}
      {status?.relay_fault && (
        <Notice tone="bad">
          <b>The mail relay does not work.</b> <Text>{status.relay_fault}</Text>
        </Notice>
      )}
    </>
  );
}

const root = document.getElementById("page");
if (root) render(<Page />, root);
