//! What fields hold: by what the configuration says, else by their well-known names.

use tollgate_core::key::{FieldKind, Kinds, check_field_name};
use tollgate_core::policy::nearest;

use super::problem::{Findings, hint, shown};
use super::raw::{FieldForm, IpForm, Named};
use super::tree::Path;

const WORDS: [&str; 4] = ["text", "ip", "address", "domain"];

pub(super) fn mean(written: &Named<FieldForm>, findings: &mut Findings<'_>) -> Kinds {
    let mut kinds = Vec::new();
    for (name, form) in &written.0 {
        let path = Path::of(&["fields", name]);
        if let Err(message) = check_field_name(name) {
            findings.key(&path, message);
        }
        let kind = match form {
            FieldForm::Word(word) => of_word(word, &path, findings),
            FieldForm::Ip(table) => of_prefixes(&table.ip, &path.key("ip"), findings),
        };
        kinds.extend(kind.map(|kind| (name.as_str().into(), kind)));
    }
    Kinds::new(kinds)
}

fn of_word(word: &str, path: &Path, findings: &mut Findings<'_>) -> Option<FieldKind> {
    match word {
        "text" => Some(FieldKind::Text),
        "ip" => Some(FieldKind::Ip { v4: 32, v6: 64 }),
        "address" => Some(FieldKind::Address),
        "domain" => Some(FieldKind::Domain),
        _ => {
            let near = hint(nearest(word, WORDS.into_iter()));
            findings
                .value(path, format!("`{}` is none of `text`, `ip`, `address`, `domain`{near}", shown(word)));
            None
        }
    }
}

fn of_prefixes(ip: &IpForm, path: &Path, findings: &mut Findings<'_>) -> Option<FieldKind> {
    let mut prefix = |name: &str, written: Option<u64>, default: u8, most: u8| {
        let Some(written) = written else { return Some(default) };
        let fits = u8::try_from(written).ok().filter(|bits| *bits <= most);
        if fits.is_none() {
            findings.value(&path.key(name), format!("`{written}` is not a prefix: write 0 to {most} bits"));
        }
        fits
    };
    let v4 = prefix("v4", ip.v4, 32, 32);
    let v6 = prefix("v6", ip.v6, 64, 128);
    Some(FieldKind::Ip { v4: v4?, v6: v6? })
}
