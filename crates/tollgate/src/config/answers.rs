//! How decisions are written for clients.

use tollgate_web::answer::{AnswerSettings, Answers, Exposure, HeaderSets, Media};

use super::problem::{Findings, listed, shown};
use super::raw::clients as raw;
use super::raw::gateway::Texts;
use super::tree::Path;

pub(super) fn mean(written: &raw::Answers, findings: &mut Findings<'_>) -> Answers {
    let path = Path::of(&["answers"]);
    let media = match written.media {
        None | Some(raw::Media::Problem) => Media::ProblemJson,
        Some(raw::Media::Json) => Media::Json,
    };
    let expose = if written.expose.unwrap_or(false) { Exposure::Exposed } else { Exposure::Hidden };
    let settings = AnswerSettings {
        media,
        type_uri: written.r#type.clone(),
        title: written.title.clone(),
        detail: written.detail.clone(),
        body: written.body.clone(),
        headers: headers(written.headers.as_ref(), &path.key("headers"), findings),
        expose,
    };
    Answers::new(settings).unwrap_or_else(|error| {
        let at = error.character.map_or_else(String::new, |at| format!("at character {at}: "));
        findings.value(&path.key(error.setting), format!("{at}{}", error.problem));
        Answers::default()
    })
}

fn headers(written: Option<&Texts>, path: &Path, findings: &mut Findings<'_>) -> HeaderSets {
    let Some(written) = written else { return HeaderSets::default() };
    let mut sets = HeaderSets { x_ratelimit: false, ietf: false };
    for text in written.as_slice() {
        match text.as_str() {
            "x-ratelimit" => sets.x_ratelimit = true,
            "ietf" => sets.ietf = true,
            "none" if written.as_slice().len() == 1 => {}
            _ => {
                let known = listed(["x-ratelimit", "ietf", "none"]);
                findings.value(path, format!("`{}` is none of {known}", shown(text)));
            }
        }
    }
    sets
}
