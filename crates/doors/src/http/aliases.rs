//! Former names of paths. They still work and answer like the current ones. Metrics count them under the
//! current name.

/// The start of a path, and its former name.
pub(crate) const ALIASES: [(&str, &str); 3] = [
    ("/api/v1/counters", "/api/v1/ratelimits"),
    ("/api/v1/policies", "/api/v1/rate-limits"),
    ("/api/v1/refund", "/api/v1/give"),
];

/// The former name of a path, if it has one.
pub(crate) fn earlier(path: &str) -> Option<String> {
    ALIASES.iter().find_map(|(now, before)| {
        let rest = path.strip_prefix(now)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{before}{rest}"))
    })
}
