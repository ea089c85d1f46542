//! Configurations of other rate limiters, translated for tollgate.
//!
//! [`import`] takes the texts of files and returns a commented configuration and a report: line by line what is
//! exact, what differs and why, and what needs an answer. It reads no files and writes none. If a text is broken, or
//! the texts belong to different systems, it returns errors with their positions and no configuration.

mod answers;
mod api_gateway;
mod detect;
mod draft;
mod elemta;
mod envoy;
mod ingress;
mod limitador;
mod mail_proxy;
mod marketplace;
mod names;
mod nginx;
mod report;
mod section;
mod sendry;
mod store;
mod system;
mod work;

use std::fmt;

use tollgate_tree::{Place, Problems, SyntaxError};

pub use answers::{Answers, BadAnswer};
pub use report::{Finding, Verdict};
pub use system::System;

use detect::{Content, Parsed};
use work::Work;

/// A file of another program.
#[derive(Clone, Copy, Debug)]
pub struct Input<'t> {
    /// Its name, for messages; its ending tells the language.
    pub name: &'t str,
    /// Its text.
    pub text: &'t str,
}

/// What became of the files.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The program that the files belong to.
    pub system: System,
    /// The configuration, in YAML.
    pub config: String,
    /// What was found, in the order of the files and their lines.
    pub findings: Vec<Finding>,
    /// The environment variables that the configuration takes secrets from.
    pub variables: Vec<String>,
}

/// Files that cannot be imported. Nothing is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// What is wrong; never empty.
    pub problems: Problems<Problem>,
}

/// Something that is wrong, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it is; nowhere for an answer on the command line.
    pub place: Option<Place>,
    /// What is wrong, and how to correct it.
    pub message: String,
}

/// Translates files that belong together.
pub fn import(inputs: &[Input<'_>], answers: &Answers) -> Result<Imported, ImportError> {
    let mut parsed = Vec::new();
    let mut problems = Problems::default();
    for input in inputs {
        match detect::read(input) {
            Ok(file) => parsed.push(file),
            Err(errors) => problems.extend(errors),
        }
    }
    if !problems.is_empty() {
        return Err(ImportError { problems });
    }
    let system = one_system(&parsed)?;
    let mut work = Work::new(answers);
    translate(system, &parsed, &mut work);
    work.conclude(system, inputs)
}

/// The program that a text belongs to; `None` if it is not valid, or belongs to none or to several.
pub fn recognise(input: &Input<'_>) -> Option<System> {
    let file = detect::read(input).ok()?;
    one_system(std::slice::from_ref(&file)).ok()
}

/// The one system that all files belong to.
fn one_system(files: &[Parsed]) -> Result<System, ImportError> {
    let mut signs = files.iter().flat_map(|file| &file.signs);
    let Some((first, at)) = signs.next() else {
        let problem = Problem {
            place: None,
            message: "there is no file to import: name one, as in `tollgate import nginx.conf`".to_owned(),
        };
        return Err(problem.into());
    };
    match signs.find(|(system, _)| system != first) {
        None => Ok(*first),
        Some((second, place)) => {
            let message = format!(
                "this belongs to {second}, and {at} to {first}: import the files of one program at a time, each into a configuration of its own"
            );
            Err(Problem { place: Some(place.clone()), message }.into())
        }
    }
}

fn translate(system: System, files: &[Parsed], work: &mut Work<'_>) {
    let trees = || files.iter().flat_map(|file| file.trees());
    match system {
        System::Sendry => sendry::read(&trees().collect::<Vec<_>>(), work),
        System::MailProxy => mail_proxy::read(trees(), work),
        System::Marketplace => trees().for_each(|tree| marketplace::read(tree, work)),
        System::ApiGateway => api_gateway::read(&trees().collect::<Vec<_>>(), work),
        System::Elemta => elemta::read(files, work),
        System::Nginx => {
            let blocks = files.iter().filter_map(|file| match &file.content {
                Content::Directives(directives) => Some(directives.as_slice()),
                Content::Trees(_) | Content::Variables(_) => None,
            });
            nginx::read(&blocks.collect::<Vec<_>>(), work);
        }
        System::IngressNginx => trees().for_each(|tree| ingress::read(tree, work)),
        System::EnvoyRatelimit => trees().for_each(|tree| envoy::read(tree, work)),
        System::Limitador => limitador::read(&trees().collect::<Vec<_>>(), work),
    }
}

impl From<SyntaxError> for Problem {
    fn from(error: SyntaxError) -> Self {
        Self { place: Some(error.place), message: error.message }
    }
}

impl From<Problem> for ImportError {
    fn from(problem: Problem) -> Self {
        Self { problems: [problem].into_iter().collect() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{}: ", draft::plain(&place.to_string()))?;
        }
        // A text of the file must not look like another problem.
        f.write_str(&draft::plain(&self.message))
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problems.fmt(f)
    }
}

impl std::error::Error for ImportError {}
