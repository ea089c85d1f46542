//! What denials say beside their reasons.

use tollgate_core::grammar;
use tollgate_engine::decision_token::{DenialForm, DenialSettings};

use super::problem::Findings;
use super::raw::Denials;
use super::tree::Path;

/// Stands for the token in a link.
const TOKEN: &str = "{token}";

pub(super) fn mean(written: &Denials, findings: &mut Findings<'_>) -> DenialSettings {
    let path = Path::of(&["denials"]);
    let usual = DenialSettings::default().retry_within;
    let retry_within = written.retry_within.as_deref().map_or(usual, |text| {
        grammar::parse_span(text).unwrap_or_else(|error| {
            findings.value(&path.key("retry_within"), error.to_string());
            usual
        })
    });
    DenialSettings { form: form(written, &path, findings), retry_within }
}

fn form(written: &Denials, path: &Path, findings: &mut Findings<'_>) -> DenialForm {
    match (&written.link, written.token) {
        (None, Some(false)) => DenialForm::Plain,
        (None, None | Some(true)) => DenialForm::Token,
        (Some(link), None) => link_form(link, &path.key("link"), findings),
        (Some(_), Some(_)) => {
            findings.value(
                &path.key("token"),
                "a link contains the token: keep one of `token` and `link`".to_owned(),
            );
            DenialForm::Plain
        }
    }
}

fn link_form(link: &str, path: &Path, findings: &mut Findings<'_>) -> DenialForm {
    let web = link.starts_with("https://") || link.starts_with("http://");
    let plain = link.bytes().all(|byte| byte.is_ascii_graphic());
    match link.split_once(TOKEN) {
        Some((before, after)) if web && plain && !after.contains(TOKEN) => {
            DenialForm::Link { before: before.to_owned(), after: after.to_owned() }
        }
        _ => {
            let example = "https://ops.example.com/decisions/{token}";
            findings.value(path, format!("a link is a URL with `{TOKEN}` once, as in `{example}`"));
            DenialForm::Plain
        }
    }
}
