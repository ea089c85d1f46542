//! Configurations in YAML and TOML.

use std::fmt::Write;

use tollgate::config::{Config, Format, load_str};
use tollgate::fuzzing::{Node, Value, explained, tree};

/// A configuration is read or refused with problems, each time alike. One that is read means the same in the other
/// format, and in the tersest form of its own. The first byte chooses the format.
pub fn configuration(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    // Files elsewhere are not opened here: a slash stands behind a digit, as in `100/hour`.
    let opens = |(before, byte): (u8, u8)| byte == b'/' && !before.is_ascii_digit();
    if text.starts_with('/') || text.bytes().zip(text.bytes().skip(1)).any(opens) {
        return;
    }
    let format = if choice % 2 == 0 { Format::Yaml } else { Format::Toml };
    let read = load(text, format);
    assert_eq!(load(text, format), read, "it is read once more");
    let Ok(meaning) = read else { return };
    let tree = tree(text, format).expect("it was read before");
    for format in [Format::Yaml, Format::Toml] {
        if let Some(text) = written(&tree, format) {
            let again = load(&text, format).map(|again| without_places(&again));
            assert_eq!(again, Ok(without_places(&meaning)), "it is written anew: {text}");
        }
    }
}

/// What a text means, or why it is refused.
fn load(text: &str, format: Format) -> Result<String, String> {
    let config = load_str(text, format, "fuzzed", std::iter::empty()).map_err(|error| error.to_string())?;
    let explained = explained(&config);
    let Config { listen, keys, log, drain, denials, .. } = &config;
    Ok(format!("{explained:#}\n{listen:?} {keys:?} {log:?} {drain:?} {denials:?}"))
}

/// A text without the lines and columns that warnings in it name.
fn without_places(text: &str) -> String {
    let mut parts = text.split("fuzzed:");
    let first = parts.next().unwrap_or_default().to_owned();
    let is_place = |c: char| c.is_ascii_digit() || c == ':';
    parts.fold(first, |plain, part| plain + part.trim_start_matches(is_place))
}

/// A tree on one line in YAML, or on one for each key in TOML. `None` if the format cannot express it.
fn written(tree: &Node, format: Format) -> Option<String> {
    let mut out = String::new();
    match (format, &tree.value) {
        (Format::Yaml, _) => write_value(tree, format, &mut out)?,
        (Format::Toml, Value::Table(entries)) => {
            for entry in entries {
                write_text(&entry.key, &mut out);
                out.push_str(" = ");
                write_value(&entry.node, format, &mut out)?;
                out.push('\n');
            }
        }
        (Format::Toml, _) => return None,
    }
    Some(out)
}

fn write_value(node: &Node, format: Format, out: &mut String) -> Option<()> {
    match &node.value {
        Value::Null if format == Format::Toml => return None,
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Integer(number) => write!(out, "{}", i64::try_from(*number).ok()?).ok()?,
        Value::Float(number) if number.is_finite() => write!(out, "{number:?}").ok()?,
        Value::Float(_) | Value::Reported => return None,
        Value::Text(text) => write_text(text, out),
        Value::List(nodes) => {
            out.push('[');
            for node in nodes {
                write_value(node, format, out)?;
                out.push_str(", ");
            }
            out.push(']');
        }
        Value::Table(entries) => {
            out.push('{');
            for (number, entry) in entries.iter().enumerate() {
                out.push_str(if number > 0 { ", " } else { "" });
                write_text(&entry.key, out);
                out.push_str(if format == Format::Yaml { ": " } else { " = " });
                write_value(&entry.node, format, out)?;
            }
            out.push('}');
        }
    }
    Some(())
}

/// Writes a text in quotation marks, with the escapes that both formats have.
fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            ' '..='~' if c != '"' && c != '\\' => out.push(c),
            _ => out.extend(format!("\\U{:08x}", u32::from(c)).chars()),
        }
    }
    out.push('"');
}
