//! The scripts that settle inside the server. Each is made of parts that it shares with others.

use data_encoding::HEXLOWER;
use sha1_smol::Sha1;

/// A script and the name the server knows it by.
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) name: String,
}

/// All scripts.
pub(crate) struct Scripts {
    /// Takes from one bucket that decides alone.
    pub(crate) lone: Script,
    /// Settles charges whose limits are a few numbers each.
    pub(crate) plain: Script,
    /// Settles any charges.
    pub(crate) full: Script,
    /// Gives back.
    pub(crate) refund: Script,
    /// Looks at holds, or changes them.
    pub(crate) holds: Script,
    /// Notes what was forgotten.
    pub(crate) forget: Script,
    /// Changes records of a namespace.
    pub(crate) change: Script,
    /// Tells what has changed in a namespace.
    pub(crate) changes: Script,
    /// Reads a part of a hash.
    pub(crate) page: Script,
    /// Shows that scripts run.
    pub(crate) probe: Script,
}

/// What begins a script that frees more than it writes: it runs though the server's memory is full.
const FREES: &str = "#!lua flags=allow-oom\n";

macro_rules! part {
    ($name:literal) => {
        include_str!(concat!("lua/", $name, ".lua"))
    };
}

impl Script {
    pub(crate) fn of(parts: &[&str]) -> Self {
        let source = parts.concat();
        let name = HEXLOWER.encode(&Sha1::from(&source).digest().bytes());
        Self { source, name }
    }
}

impl Default for Scripts {
    fn default() -> Self {
        let begin = part!("begin");
        let (tools, logs, ladder, look) = (part!("tools"), part!("logs"), part!("ladder"), part!("look"));
        Self {
            lone: Script::of(&[part!("lone")]),
            plain: Script::of(&[
                begin,
                part!("plain"),
                part!("weigh"),
                part!("quick"),
                tools,
                part!("settle"),
                part!("end"),
            ]),
            full: Script::of(&[
                begin,
                tools,
                logs,
                ladder,
                look,
                part!("weigh"),
                part!("settle"),
                part!("whens"),
            ]),
            refund: Script::of(&[FREES, begin, tools, logs, part!("ages"), part!("refund")]),
            holds: Script::of(&[FREES, begin, tools, logs, part!("ages"), part!("holds")]),
            forget: Script::of(&[FREES, part!("forget")]),
            change: Script::of(&[part!("map"), part!("change")]),
            changes: Script::of(&[part!("map"), part!("changes")]),
            page: Script::of(&[part!("page")]),
            probe: Script::of(&[part!("probe")]),
        }
    }
}
