//! `tollgate routes`: the policies of routes.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::table::{TextTable, Tone, or_dash};
use super::{Session, words};
use crate::client::Path;
use crate::client::wire::{self, Removed, Route};

/// What is done with routes.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Routes {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    /// List the routes and their policies
    List,
    /// Assign a policy to a route
    Assign {
        /// The route's name
        route: String,
        /// The policy's name; it may be configured or created with `policies create`
        policy: String,
    },
    /// Restore the configured policy of a route
    Unassign {
        /// The route's name
        route: String,
    },
}

const EXAMPLES: &str = "\
Examples:
  tollgate routes list
  tollgate routes assign checkout partners
  tollgate routes unassign checkout

An assignment takes effect immediately, and on every node within a second. It overrides the configuration file
until it is removed. Exit codes: 0 done, 2 an error.";

impl Routes {
    pub(super) fn run(&self, session: &mut Session<'_>) -> anyhow::Result<ExitCode> {
        match &self.action {
            Action::List => {
                let answer = session.client.get(&Path::new(&["routes"]))?;
                session.show(&answer, put_all)?;
            }
            Action::Assign { route, policy } => {
                let answer = session.client.put(&one(route), &json!({ "policy": policy }))?;
                session.show(&answer, |route: &Route, out| {
                    let policy = or_dash(route.policy.clone());
                    writeln!(out, "{} passes {}", words::plain(&route.route), words::plain(&policy))
                })?;
            }
            Action::Unassign { route } => {
                let answer = session.client.delete(&one(route))?;
                session.show(&answer, |answer: &Removed, out| {
                    let route = words::plain(route);
                    if answer.removed {
                        writeln!(out, "{route} uses its configured policy")
                    } else {
                        writeln!(out, "{route} had no assigned policy")
                    }
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn one(route: &str) -> Path {
    Path::new(&["routes", route, "rate-limit"])
}

fn put_all(routes: &wire::Routes, out: &mut dyn Write) -> io::Result<()> {
    let mut table = TextTable::new(&["route", "path", "policy", "because"]);
    for route in &routes.routes {
        let because = match (&route.policy, &route.assigned) {
            (None, None) => "-",
            (Some(policy), Some(assigned)) if policy == assigned => "assigned",
            (_, Some(_)) => "the assigned policy is gone",
            (Some(_), None) => "configured",
        };
        let (tone, path) = match &route.path {
            Some(path) => (Tone::Normal, path.clone()),
            None => (Tone::Faint, "(there is no such route)".to_owned()),
        };
        table.line(tone, [route.route.clone(), path, or_dash(route.policy.clone()), because.to_owned()]);
    }
    if table.is_empty() {
        return writeln!(out, "this server has no routes");
    }
    write!(out, "{table}")
}
