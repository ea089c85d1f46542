//! Earlier names of paths. They still work and answer like the present ones; metrics count them under the
//! present name.

/// The beginning of a path now, and what it was before.
pub(crate) const ALIASES: [(&str, &str); 3] = [
    ("/api/v1/counters", "/api/v1/ratelimits"),
    ("/api/v1/policies", "/api/v1/rate-limits"),
    ("/api/v1/refund", "/api/v1/give"),
];

/// The earlier name of a path, if it has one.
pub(crate) fn earlier(path: &str) -> Option<String> {
    ALIASES.iter().find_map(|(now, before)| {
        let rest = path.strip_prefix(now)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| format!("{before}{rest}"))
    })
}
