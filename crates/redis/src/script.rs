//! The Lua scripts that settle inside the server. They are assembled from shared parts.

use data_encoding::HEXLOWER;
use sha1_smol::Sha1;

/// A script and its hash, by which the server knows it.
pub(crate) struct Script {
    pub(crate) source: String,
    pub(crate) name: String,
}

/// All scripts.
pub(crate) struct Scripts {
    /// Takes from a single bucket.
    pub(crate) lone: Script,
    /// Settles charges whose limits are a few numbers each.
    pub(crate) plain: Script,
    /// Settles any charges.
    pub(crate) full: Script,
    /// Refunds.
    pub(crate) refund: Script,
    /// Reads or changes holds.
    pub(crate) holds: Script,
    /// Records that counters were forgotten.
    pub(crate) forget: Script,
    /// Changes records of a namespace.
    pub(crate) change: Script,
    /// Returns the changes of a namespace.
    pub(crate) changes: Script,
    /// Reads a page of a hash.
    pub(crate) page: Script,
    /// Tests that scripts run.
    pub(crate) probe: Script,
}

/// The first line of a script that frees more memory than it uses, so that it runs on a full server.
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
                tools,
                part!("quick"),
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
