//! The console: the files of a web page, which gets everything it shows from this API. They are built from
//! `console/` and are a part of the program.

use std::sync::{Arc, LazyLock};

use axum::body::Body;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use sha2::{Digest, Sha256};

use super::App;
use super::endpoint::{Answered, Ask, Endpoint};

/// Only files of this server, nothing inline, no frames around it, no forms that leave the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// One file of the page.
struct File {
    path: &'static str,
    media: &'static str,
    bytes: &'static [u8],
}

macro_rules! built {
    ($name:literal) => {
        include_bytes!(concat!("../../../../console/dist/", $name))
    };
}

static FILES: [File; 4] = [
    File { path: "/", media: "text/html; charset=utf-8", bytes: built!("index.html") },
    File { path: "/console.js", media: "text/javascript; charset=utf-8", bytes: built!("console.js") },
    File { path: "/console.css", media: "text/css; charset=utf-8", bytes: built!("console.css") },
    File { path: "/console.svg", media: "image/svg+xml", bytes: built!("console.svg") },
];

/// The version of all files together.
static VERSION: LazyLock<HeaderValue> = LazyLock::new(|| {
    let mut hash = Sha256::new();
    FILES.iter().for_each(|file| hash.update(file.bytes));
    let version = format!("\"{}\"", data_encoding::HEXLOWER.encode(&hash.finalize()[..12]));
    HeaderValue::try_from(version).expect("hexadecimal digits are visible")
});

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let endpoint = |file: &'static File| {
        Endpoint::new(Method::GET, file.path, None, move |app, ask| serve(app, ask, file))
    };
    FILES.iter().map(endpoint).collect()
}

async fn serve(_: Arc<App>, ask: Ask, file: &'static File) -> Answered {
    let known = ask.headers.get(IF_NONE_MATCH).is_some_and(|known| *known == *VERSION);
    let mut response = Response::new(Body::from(if known { &[] } else { file.bytes }));
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let head = response.headers_mut();
    // A browser asks each time whether the files are still the same, so page and server always fit.
    head.insert(ETAG, VERSION.clone());
    let fixed = [
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_TYPE, file.media),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ];
    for (name, value) in fixed {
        head.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
