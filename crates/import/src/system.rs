//! The programs whose files are understood.

use std::fmt;

/// A program whose files are understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// The mail server Sendry: `rate_limit:` and `domains:` in YAML.
    Sendry,
    /// genro-mail-proxy: accounts in JSON.
    MailProxy,
    /// The ad marketplace: `rate-limit:` in a Spring configuration.
    Marketplace,
    /// The API gateway: `gateway.ratelimit` in a Spring configuration.
    ApiGateway,
    /// The mail server Elemta: `[resources]` in TOML, and its environment.
    Elemta,
    /// nginx: `limit_req` and `limit_conn`.
    Nginx,
    /// ingress-nginx: annotations of an Ingress.
    IngressNginx,
    /// envoyproxy/ratelimit: descriptors of a domain.
    EnvoyRatelimit,
    /// limitador: a list of limits.
    Limitador,
}

impl System {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Sendry,
        Self::MailProxy,
        Self::Marketplace,
        Self::ApiGateway,
        Self::Elemta,
        Self::Nginx,
        Self::IngressNginx,
        Self::EnvoyRatelimit,
        Self::Limitador,
    ];

    /// How its files are recognised.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Sendry => "`rate_limit:` or `domains:` in YAML",
            Self::MailProxy => "accounts with `limit_per_minute` in JSON",
            Self::Marketplace => "`rate-limit:` with `tiers` in YAML",
            Self::ApiGateway => "`gateway: ratelimit:` in YAML, or policies with `requestsPerSecond` in JSON",
            Self::Elemta => "`[resources]` in TOML, or `VALKEY_URL=` in an environment file",
            Self::Nginx => "`limit_req` or `limit_conn`",
            Self::IngressNginx => "`kind: Ingress` in YAML",
            Self::EnvoyRatelimit => "`domain:` and `descriptors:` in YAML",
            Self::Limitador => "limits with `max_value` in YAML",
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sendry => "Sendry",
            Self::MailProxy => "genro-mail-proxy",
            Self::Marketplace => "the ad marketplace",
            Self::ApiGateway => "the API gateway",
            Self::Elemta => "Elemta",
            Self::Nginx => "nginx",
            Self::IngressNginx => "ingress-nginx",
            Self::EnvoyRatelimit => "Envoy's ratelimit",
            Self::Limitador => "limitador",
        })
    }
}
