//! Environment variables that override values in the tree: `TOLLGATE__RULES__SENDER__LIMITS=[5/hour]`.
//!
//! Two underscores separate levels, the case of names does not matter, and the value is YAML. Unknown keys
//! are reported when the tree is read, like all others.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::policy::nearest;

use super::ELSEWHERE;
use super::problem::{ConfigError, ConfigProblem, hint, shown};
use super::tree::{Entry, Node, Path, Place, Problems, Value, yaml};

const PREFIX: &str = "TOLLGATE__";

/// Sections whose keys are chosen by the author. A variable that reaches below such a name must use an
/// existing one; otherwise a typo would create a rule that no policy uses.
const NAMED: [(&str, &str); 4] =
    [("rules", "rule"), ("policies", "policy"), ("fields", "field"), ("guards", "guard")];

pub(super) fn apply(tree: &mut Node, environment: &HashMap<String, String>) -> Result<(), ConfigError> {
    let mut variables: Vec<_> = environment.iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    // In sorted order, a variable for a section comes before those for its parts.
    variables.sort();
    let mut problems = Problems::default();
    let mut earlier: HashMap<String, &String> = HashMap::new();
    for (name, text) in variables {
        let place = Place::Variable { name: name.as_str().into() };
        if let Some(other) = earlier.insert(name.to_lowercase(), name) {
            let message = format!("this is the same setting as {other}: keep one of them");
            problems.add(|| ConfigProblem::new(place, String::new(), message));
            continue;
        }
        match yaml::read_variable(text, &Arc::from(name.as_str()), ELSEWHERE) {
            Err(error) => problems.extend(ConfigError::from(error).problems),
            Ok(node) => {
                let segments: Vec<&str> = name[PREFIX.len()..].split("__").collect();
                if let Err((path, message)) = put(tree, &segments, node) {
                    problems.add(|| ConfigProblem::new(place, path.to_string(), message));
                }
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(ConfigError { problems }) }
}

/// Puts a node at the path of the segments, and creates missing levels.
fn put(tree: &mut Node, segments: &[&str], new: Node) -> Result<(), (Path, String)> {
    let mut path = Path::default();
    let mut node = tree;
    let mut section = None;
    for (depth, segment) in segments.iter().enumerate() {
        if segment.is_empty() {
            return Err((path, "a name is missing between the underscores".to_owned()));
        }
        if matches!(node.value, Value::Null) {
            node.value = Value::Table(Vec::new());
        }
        let reaches_below = depth + 1 < segments.len();
        let named = section.filter(|_| depth == 1 && reaches_below);
        node = match &mut node.value {
            Value::List(nodes) => {
                let length = nodes.len();
                let Some(index) = segment.parse().ok().filter(|index| *index < length) else {
                    let elements = format!("this list has {length} elements, numbered from 0");
                    return Err((path, format!("{elements}: there is no `{}`", shown(segment))));
                };
                path = path.index(index);
                &mut nodes[index]
            }
            Value::Table(entries) => {
                let index =
                    enter(entries, segment, named, &new.place).map_err(|message| (path.clone(), message))?;
                path = path.key(&entries[index].key);
                &mut entries[index].node
            }
            other => return Err((path, format!("this is {}: there is nothing below it", other.kind()))),
        };
        if depth == 0 {
            section = NAMED.iter().find(|(name, _)| Path::of(&[name]) == path).map(|(_, one)| *one);
        }
    }
    *node = new;
    Ok(())
}

/// The entry for a segment, in any case. It is created if it does not exist, unless it must be an existing
/// name of kind `one`.
fn enter(entries: &mut Vec<Entry>, segment: &str, one: Option<&str>, place: &Place) -> Result<usize, String> {
    let wanted = segment.to_lowercase();
    if let Some(index) = entries.iter().position(|entry| entry.key.to_lowercase() == wanted) {
        return Ok(index);
    }
    if let Some(one) = one {
        let near = hint(nearest(&wanted, entries.iter().map(|entry| entry.key.as_str())));
        return Err(format!("there is no {one} `{}` to change{near}", shown(&wanted)));
    }
    let node = Node { value: Value::Null, place: place.clone() };
    entries.push(Entry { key: wanted, key_place: place.clone(), node });
    Ok(entries.len() - 1)
}
