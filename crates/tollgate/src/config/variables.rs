//! Environment variables laid over the tree: `TOLLGATE__RULES__SENDER__LIMITS=[5/hour]`.
//!
//! Two underscores separate levels, names match whatever their case, and the value is YAML. Which
//! keys exist is checked when the tree is read, as for everything else.
//!
//! `VALKEY_URL` and `VALKEY_KEY_PREFIX`, which other programs share, name the store where nothing
//! else does.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::policy::nearest;

use super::from_yaml;
use super::problem::{ConfigError, Problem, hint, shown};
use super::tree::{Entry, Node, Path, Place, Value};

const PREFIX: &str = "TOLLGATE__";

/// Sections whose keys are names that the author chose: a variable that reaches below one of those
/// names must mean one that exists, or a slip would make a new rule that nobody uses.
const NAMED: [(&str, &str); 4] =
    [("rules", "rule"), ("policies", "policy"), ("fields", "field"), ("guards", "guard")];

/// The address of the store, where nothing else names one.
const URL: &str = "VALKEY_URL";
/// What its keys begin with.
const KEY_PREFIX: &str = "VALKEY_KEY_PREFIX";

pub(super) fn apply(tree: &mut Node, environment: &HashMap<String, String>) -> Result<(), ConfigError> {
    let mut variables: Vec<_> = environment.iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    // Sorted, a variable for a section comes before those for what is inside.
    variables.sort();
    let mut problems = Vec::new();
    let mut earlier: HashMap<String, &String> = HashMap::new();
    for (name, text) in variables {
        let place = Place::Variable { name: name.as_str().into() };
        if let Some(other) = earlier.insert(name.to_lowercase(), name) {
            let message = format!("this is the same setting as {other}: keep one of them");
            problems.push(Problem::new(place, String::new(), message));
            continue;
        }
        match from_yaml::read_variable(text, &Arc::from(name.as_str())) {
            Err(error) => problems.extend(error.problems),
            Ok(node) => {
                let segments: Vec<&str> = name[PREFIX.len()..].split("__").collect();
                if let Err((path, message)) = put(tree, &segments, node) {
                    problems.push(Problem::new(place, path.to_string(), message));
                }
            }
        }
    }
    name_store(tree, environment);
    if problems.is_empty() { Ok(()) } else { Err(problems.into()) }
}

/// Whether the environment names a store for whoever names none.
pub(super) fn name_a_store(environment: &HashMap<String, String>) -> bool {
    environment.get(URL).is_some_and(|url| !url.is_empty())
}

/// Names the store by [`URL`] and [`KEY_PREFIX`], if the tree names none.
fn name_store(tree: &mut Node, environment: &HashMap<String, String>) {
    let Value::Table(entries) = &mut tree.value else { return };
    let is_named =
        entries.iter().any(|entry| entry.key == "store" && !matches!(entry.node.value, Value::Null));
    if is_named || !name_a_store(environment) {
        return;
    }
    let set = |variable: &str, key: &str| {
        let text = environment.get(variable).filter(|text| !text.is_empty())?;
        let place = Place::Variable { name: variable.into() };
        let node = Node { value: Value::Text(text.clone()), place: place.clone() };
        Some(Entry { key: key.to_owned(), key_place: place, node })
    };
    let settings = [set(URL, "redis"), set(KEY_PREFIX, "key_prefix")].into_iter().flatten().collect();
    let place = Place::Variable { name: URL.into() };
    let node = Node { value: Value::Table(settings), place: place.clone() };
    entries.retain(|entry| entry.key != "store");
    entries.push(Entry { key: "store".to_owned(), key_place: place, node });
}

/// Puts a node where the segments lead; what is missing on the way is made.
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

/// The entry that a segment means, whatever its case. It is made if it is not there, unless it must
/// be the name of `one` that exists.
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
