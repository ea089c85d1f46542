//! The columns that usually contain a field.

use super::Form;

/// The columns that usually contain a field, the most likely first.
pub(super) fn columns(field: &str) -> Vec<(String, Form)> {
    let own = [(field.to_owned(), form_of(field, field))];
    let usual = match field {
        "ip" | "client_ip" => vec![
            ("remote_addr", Form::Address),
            ("request.client_ip", Form::Address),
            ("request.remote_ip", Form::Address),
            ("client_ip", Form::Address),
            ("clientip", Form::Address),
            ("remote_ip", Form::Address),
            ("ip", Form::Address),
            ("client", Form::Address),
            ("ClientHost", Form::Address),
            ("downstream_remote_address", Form::Address),
            // The proxy that wrote the log appended its client's address.
            ("x_forwarded_for", Form::LastAddress),
        ],
        "method" => vec![
            ("request_method", Form::Text),
            ("request.method", Form::Text),
            ("RequestMethod", Form::Text),
            ("request", Form::MethodOfRequest),
        ],
        "path" => vec![
            ("request_uri", Form::Path),
            ("uri", Form::Path),
            ("request.uri", Form::Path),
            ("RequestPath", Form::Path),
            ("request", Form::PathOfRequest),
            ("url", Form::Path),
        ],
        "host" => vec![
            ("http_host", Form::Host),
            ("request.host", Form::Host),
            ("domain_name", Form::Host),
            ("authority", Form::Host),
            ("server_name", Form::Host),
            ("RequestHost", Form::Host),
            ("request", Form::HostOfRequest),
        ],
        "user" => ["remote_user", "user_id", "username", "user_name"].map(|name| (name, Form::Text)).to_vec(),
        "user_agent" => {
            ["http_user_agent", "request.headers.User-Agent", "agent", "ua", "request_User-Agent"]
                .map(|name| (name, Form::Text))
                .to_vec()
        }
        "status" => ["status_code", "response_code", "elb_status_code", "DownstreamStatus", "code"]
            .map(|name| (name, Form::Text))
            .to_vec(),
        "domain" | "recipient_domain" => vec![("recipient", Form::Domain)],
        "sender_domain" => vec![("sender", Form::Domain)],
        "bytes" => vec![("size", Form::Text)],
        _ => Vec::new(),
    };
    let usual = usual.into_iter().map(|(column, form)| (column.to_owned(), form));
    // A column with the field's own name may contain a list or an endpoint, so the usual columns come first.
    own.into_iter().chain(usual).chain(named(field)).collect()
}

/// The columns of `header.NAME`, `cookie.NAME` and `query.NAME`.
fn named(field: &str) -> Vec<(String, Form)> {
    let Some((family, name)) = field.split_once('.') else { return Vec::new() };
    let snake = name.to_ascii_lowercase().replace('-', "_");
    match family {
        "header" => {
            let title: Vec<String> = name.split('-').map(titled).collect();
            vec![
                (format!("http_{snake}"), Form::Text),
                (format!("request.headers.{}", title.join("-")), Form::Text),
            ]
        }
        "cookie" => vec![(format!("cookie_{name}"), Form::Text)],
        "query" => {
            let targets = ["request_uri", "uri", "request.uri", "url"];
            let mut columns = vec![(format!("arg_{snake}"), Form::Text)];
            columns.extend(targets.map(|column| (column.to_owned(), Form::Query(field.into()))));
            columns.push(("request".to_owned(), Form::QueryOfRequest(field.into())));
            columns
        }
        _ => Vec::new(),
    }
}

fn titled(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters.map(|letter| letter.to_ascii_lowercase())).collect()
}

/// The conversion of a column that `--map` or its name assigns to a field.
pub(super) fn form_of(field: &str, column: &str) -> Form {
    let of_request = column.trim_start_matches('$') == "request";
    match field {
        "ip" | "client_ip" if column.contains("forwarded") => Form::LastAddress,
        "ip" | "client_ip" => Form::Address,
        "host" if of_request => Form::HostOfRequest,
        "host" => Form::Host,
        "path" if of_request => Form::PathOfRequest,
        "path" => Form::Path,
        "method" if of_request => Form::MethodOfRequest,
        _ => Form::Text,
    }
}
