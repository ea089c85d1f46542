//! The kinds of fields, and what they are derived from: as configured, or else by their well-known names.

use tollgate_core::key::{FieldKind, Kinds, check_field_name};
use tollgate_core::policy::nearest;

use super::problem::{Findings, hint, shown};
use super::raw::{FieldForm, FieldTable, IpForm, Named};
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
            FieldForm::Table(FieldTable { ip: Some(ip), .. }) => of_prefixes(ip, &path.key("ip"), findings),
            FieldForm::Table(FieldTable { ip: None, of: Some(_) }) => Some(FieldKind::Domain),
            FieldForm::Table(FieldTable { ip: None, of: None }) => {
                findings.value(&path, "an empty table has no effect: write `ip` or `of`".to_owned());
                None
            }
        };
        kinds.extend(kind.map(|kind| (name.as_str().into(), kind)));
    }
    derive(written, Kinds::new(kinds), findings)
}

/// Adds derivations, once the kinds of all fields are known.
fn derive(written: &Named<FieldForm>, mut kinds: Kinds, findings: &mut Findings<'_>) -> Kinds {
    for (name, form) in &written.0 {
        let FieldForm::Table(FieldTable { of: Some(source), ip }) = form else { continue };
        let path = Path::of(&["fields", name, "of"]);
        if let Err(message) = check_field_name(source) {
            findings.value(&path, message);
            continue;
        }
        if ip.is_none() && matches!(kinds.of(source), FieldKind::Ip { .. }) {
            let wanted = format!("write `{{ of: {source}, ip: {{ v4: 24, v6: 48 }} }}`");
            findings.value(&path, format!("`{source}` holds IP addresses: {wanted} to count networks"));
            continue;
        }
        match kinds.clone().derive(name, source) {
            Ok(derived) => kinds = derived,
            Err(message) => findings.value(&path, message),
        }
    }
    kinds
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
