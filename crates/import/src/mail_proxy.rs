//! genro-mail-proxy: accounts with limits by minute, hour and day.
//!
//! Its windows slide, as `sliding` does. An account with a host becomes an account of the relay; one without becomes
//! an override of the rule `account`.

use std::collections::HashSet;

use tollgate_tree::{Node, Path, Place, Value};

use crate::draft::{PolicyDraft, RuleDraft, list, scalar};
use crate::names;
use crate::section::Section;
use crate::work::{Keys, Work, shorten};

/// The environment variable with the secret that seals passwords.
const SECRET: &str = "TOLLGATE_RELAY_SECRET";

/// What is known of the accounts so far.
struct Accounts {
    keys: Keys,
    /// Limits of accounts without a host.
    overrides: Vec<(String, Vec<String>)>,
    /// Lines of the relay's accounts.
    lines: Vec<String>,
    /// The tenant of the first account.
    tenant: Option<String>,
    /// The environment variables of passwords.
    variables: HashSet<String>,
    /// The first place, for what concerns them all.
    first: Option<Place>,
}

pub(crate) fn read<'t>(trees: impl Iterator<Item = &'t Node>, work: &mut Work<'_>) {
    let mut accounts = Accounts {
        keys: Keys::new(&["tenant", "account"]),
        overrides: Vec::new(),
        lines: Vec::new(),
        tenant: None,
        variables: HashSet::new(),
        first: None,
    };
    for tree in trees {
        let listed = tree.entry("accounts").map_or(tree, |entry| &entry.node);
        match &listed.value {
            Value::List(nodes) => nodes.iter().for_each(|node| read_account(node, &mut accounts, work)),
            _ => read_account(listed, &mut accounts, work),
        }
    }
    write(accounts, work);
}

impl Accounts {
    /// A variable for the password of an account, which no other account has.
    fn variable(&mut self, tenant: &str, id: &str) -> String {
        let short = std::iter::once(format!("{id}_password"));
        let numbered = (2..).map(|number| format!("{tenant}_{id}_password_{number}"));
        let mut names = short
            .chain([format!("{tenant}_{id}_password")])
            .chain(numbered)
            .map(|text| names::variable(&text));
        let free =
            names.find(|name| !self.variables.contains(name)).expect("there are more numbers than accounts");
        self.variables.insert(free.clone());
        free
    }
}

fn read_account(node: &Node, accounts: &mut Accounts, work: &mut Work<'_>) {
    let Some(mut account) = Section::of(node, Path::default(), work) else { return };
    accounts.first.get_or_insert_with(|| node.place.clone());
    let Some((id, place)) = account.text("id", work) else {
        work.wrong(&node.place, "the account has no `id`");
        return;
    };
    let tenant = account.text("tenant_id", work);
    let tenant = match tenant {
        Some((tenant, _)) => tenant,
        None => "default".to_owned(),
    };
    for name in [&tenant, &id] {
        if !is_name(name) {
            let message =
                format!("`{}` cannot name an account: use 1 to 64 of `A-Z a-z 0-9 _ . - @`", shorten(name));
            work.wrong(place, message);
            return;
        }
    }
    let Some(key) = accounts.keys.key(&[&tenant, &id], place, work) else { return };
    let limits = windows(&mut account, &id, work);
    if limits.is_empty() {
        work.exact(place, format!("the account `{tenant}/{id}` has no limits"));
    }
    let behavior = account.text("limit_behavior", work);
    let host = account.text("host", work);
    let rejects = behavior.is_some_and(|(text, place)| rejects(&text, host.is_some(), place, work));
    match host {
        Some((host, _)) => {
            relay_account((&tenant, &id), &host, (limits, rejects), &mut account, accounts, work);
        }
        None => {
            work.asks(
                place,
                format!("the account `{tenant}/{id}` has no `host`; assumed that another program sends its mail and asks the policy `mail.send`. Add `host` to send through tollgate's relay"),
            );
            accounts.overrides.push((key, limits));
        }
    }
    accounts.tenant.get_or_insert(tenant);
    account.leave("it is not about limits, or has no equivalent", work);
}

/// Whether an account of the relay returns mail over its limits to the sender.
fn rejects(behavior: &str, is_relayed: bool, place: &Place, work: &mut Work<'_>) -> bool {
    match behavior {
        "reject" if is_relayed => {
            work.exact(place, "`on_limit: reject`: mail over the limit is returned to its sender");
        }
        "reject" => work.differs(
            place,
            "`limit_behavior: reject` defers here: without a `host` the account is a key of the rule `account`, and a rule defers or rejects at all of its keys. Add `host` for `on_limit: reject`",
        ),
        "defer" => work.exact(place, "mail over the limit waits"),
        other => {
            let other = shorten(other);
            work.asks(place, format!("`limit_behavior` is `defer` or `reject`, not `{other}`; assumed `defer`"));
        }
    }
    behavior == "reject"
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '@');
    (1..=64).contains(&text.len()) && text.chars().all(fits)
}

/// The limits of an account. Null and 0 are no limit.
fn windows(account: &mut Section<'_>, id: &str, work: &mut Work<'_>) -> Vec<String> {
    let mut limits = Vec::new();
    for (key, period) in [("limit_per_minute", "min"), ("limit_per_hour", "hour"), ("limit_per_day", "day")] {
        let Some((number, place)) = account.whole(key, work) else { continue };
        if number == 0 {
            work.exact(place, format!("`{id}`: `{key}` 0 is no limit"));
        } else {
            limits.extend(work.sliding(place, &format!("`{id}`: `{key}`"), number, period));
        }
    }
    limits
}

/// Adds an account to the relay.
fn relay_account(
    (tenant, id): (&str, &str),
    host: &str,
    (limits, rejects): (Vec<String>, bool),
    account: &mut Section<'_>,
    accounts: &mut Accounts,
    work: &mut Work<'_>,
) {
    let mut settings = vec![format!("host: {}", scalar(host))];
    let port = account.whole("port", work);
    settings.extend(port.map(|(port, _)| format!("port: {port}")));
    let login = account.text("user", work);
    let password = account.text("password", work);
    let port = port.map_or(587, |(port, _)| port);
    settings.push(format!("tls: {}", tls(account, port, password.is_some(), work)));
    match (login, password) {
        (Some((user, place)), password) => {
            let place = password.map_or(place, |(_, place)| place);
            let variable = accounts.variable(tenant, id);
            settings.push(format!("user: {}, password_env: {variable}", scalar(&user)));
            work.asks(
                place,
                format!(
                    "`{id}`: the password is not copied: put it into the environment variable `{variable}`"
                ),
            );
            work.draft.variables.push(variable);
        }
        (None, Some((_, place))) => work.left_out(place, format!("`{id}`: a password without a user")),
        (None, None) => {}
    }
    settings.push(format!("limits: {}", list(&limits)));
    if rejects {
        settings.push("on_limit: reject".to_owned());
    }
    accounts.lines.push(format!("    {}: {{ {} }}", scalar(&format!("{tenant}/{id}")), settings.join(", ")));
}

fn tls(account: &mut Section<'_>, port: u64, has_password: bool, work: &mut Work<'_>) -> &'static str {
    let place = account.place;
    match account.flag("use_tls", work) {
        _ if port == 465 => "implicit",
        Some((true, _)) => "starttls",
        Some((false, _)) if !has_password => "none",
        Some((false, place)) => {
            work.differs(
                place,
                "`use_tls` is false, and here `starttls`: a password is never sent without TLS",
            );
            "starttls"
        }
        None => {
            work.differs(place, "`use_tls` is not given, and here `starttls`: certificates are verified");
            "starttls"
        }
    }
}

/// How many keys the store keeps. Only accounts are counted, so there is room for many more than the files have. A log of
/// each of a million keys would not fit into any machine.
fn room(accounts: &Accounts) -> usize {
    (4 * (accounts.lines.len() + accounts.overrides.len())).next_multiple_of(1_000).max(10_000)
}

fn write(accounts: Accounts, work: &mut Work<'_>) {
    let Some(first) = accounts.first.clone() else { return };
    work.differs(
        &first,
        "mail over a limit waits until the exact moment at which it may be sent, not until the next minute, hour or midnight: a sliding window frees room there at any moment. `on_exceed: { defer: { aligned: true } }` waits for the boundary",
    );
    work.differs(
        &first,
        "an account belongs to its tenant: accounts of two tenants with the same name do not share a budget",
    );
    // A crash must not reset an account's day.
    work.draft.store =
        Some(format!("{{ file: ./tollgate.redb, sync: always, max_keys: {} }}", room(&accounts)));
    work.draft.rules.push(RuleDraft {
        name: "account".to_owned(),
        comments: vec!["Each account of a tenant. Mail over a limit is deferred, never rejected.".to_owned()],
        by: vec!["tenant".to_owned(), "account".to_owned()],
        overrides: accounts.overrides,
        on_exceed: Some("defer".to_owned()),
        ..RuleDraft::default()
    });
    work.draft.policies.push(PolicyDraft {
        name: "mail.send".to_owned(),
        comments: vec!["Charged for every message, just before it is sent.".to_owned()],
        rules: vec!["account".to_owned()],
    });
    if accounts.lines.is_empty() {
        return;
    }
    let tenant = accounts.tenant.unwrap_or_default();
    work.asks(
        &first,
        format!("the file does not tell who may send; assumed programs on this machine, for the tenant `{tenant}`. Change `relay.networks` and `relay.network_tenant`, or add `relay.users`"),
    );
    work.asks(
        &first,
        format!("`POST /account` adds accounts while tollgate runs, and seals their passwords in the store: put a secret of your own into the environment variable `{SECRET}`, as `openssl rand -hex 32` makes one"),
    );
    work.draft.variables.push(SECRET.to_owned());
    let head = format!(
        "relay:\n  listen: [{{ smtp: 127.0.0.1:2525 }}]\n  networks: [127.0.0.0/8]\n  network_tenant: {}\n  deliver: mail.send\n  queue: {{ dir: ./queue }}\n  # Seals the passwords of accounts that `POST /account` adds.\n  secret_env: {SECRET}\n  accounts:\n",
        scalar(&tenant)
    );
    work.draft.sections.push(head + &accounts.lines.join("\n"));
}
