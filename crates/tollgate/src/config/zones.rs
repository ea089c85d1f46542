//! Checks time zones against the database that is built into the program.

use jiff::tz::TimeZoneDatabase;
use tollgate_core::policy::nearest;

use super::problem::{hint, shown};

/// What is wrong with the name of a time zone.
pub(super) fn problem(name: &str) -> Option<String> {
    let zones = TimeZoneDatabase::bundled();
    match zones.get(name) {
        // A zone's name is part of a counter's identity, so only one spelling is allowed.
        Ok(zone) => match zone.iana_name() {
            Some(exact) if exact != name => Some(format!("this time zone is spelled `{exact}`")),
            _ => None,
        },
        Err(_) => {
            let names: Vec<String> = zones.available().map(|zone| zone.as_str().to_owned()).collect();
            let near = nearest(name, names.iter().map(String::as_str));
            Some(format!("there is no time zone `{}`{}", shown(name), hint(near)))
        }
    }
}
