//! The OpenAPI 3.1 document, generated from the endpoints and their types.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::aliases::ALIASES;
use super::endpoint::{Endpoint, Operation};
use super::problem::{PROBLEM_JSON, ProblemBody};

/// The path of schemas in the document.
const SCHEMAS: &str = "/components/schemas";

/// The document that describes these endpoints.
pub(crate) fn document(endpoints: &[Endpoint]) -> Value {
    let settings =
        |settings: SchemaSettings| settings.with(|settings| settings.definitions_path = SCHEMAS.into());
    let mut requests = settings(SchemaSettings::draft2020_12().for_deserialize()).into_generator();
    let mut answers = settings(SchemaSettings::draft2020_12().for_serialize()).into_generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for endpoint in endpoints {
        for operation in &endpoint.operations {
            let described = describe(endpoint, operation, &mut requests, &mut answers);
            let method = endpoint.method.as_str().to_ascii_lowercase();
            paths.entry(operation.path).or_default().insert(method, described);
        }
    }
    let mut schemas = requests.take_definitions(true);
    schemas.extend(answers.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "tollgate",
            "description": about_the_api(),
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
                "token": { "type": "apiKey", "in": "header", "name": "X-API-Token" },
                "proxy": { "type": "apiKey", "in": "header", "name": "X-Tollgate-Token" },
            },
        },
    })
}

fn about_the_api() -> String {
    let names = ALIASES.map(|(now, before)| format!("`{before}` is `{now}`"));
    format!(
        "Rate limits for HTTP APIs, mail, logins and outbound calls. Roles: check < read < admin. \
         Earlier names of paths still work: {}.",
        names.join(", ")
    )
}

fn describe(
    endpoint: &Endpoint,
    operation: &Operation,
    requests: &mut SchemaGenerator,
    answers: &mut SchemaGenerator,
) -> Value {
    let mut described = json!({
        "summary": operation.summary,
        "parameters": parameters(operation),
        "responses": responses(operation, answers),
        "security": [],
    });
    if let Some(role) = endpoint.role {
        described["description"] = format!("Needs the role `{}`.", role.name()).into();
        described["security"] = endpoint.tokens.iter().map(|token| json!({ *token: [] })).collect();
    }
    if let Some(schema) = operation.request {
        let mut content = json!({ "application/json": { "schema": schema(requests) } });
        if let Some(media) = operation.other_media {
            content[media] = json!({ "schema": { "type": "string", "format": "binary" } });
        }
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    described
}

fn parameters(operation: &Operation) -> Vec<Value> {
    let names = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let text = json!({ "type": "string" });
    let path = names.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }));
    let query = operation
        .query
        .iter()
        .map(|(name, about)| json!({ "name": name, "in": "query", "description": about, "schema": text }));
    path.chain(query).collect()
}

fn responses(operation: &Operation, answers: &mut SchemaGenerator) -> Value {
    let mut responses: BTreeMap<String, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
    for (status, media, schema) in &operation.answers {
        let content = responses.entry(status.to_string()).or_default();
        content.entry(media).or_default().push(schema(answers).to_value());
    }
    responses.insert("default".to_owned(), BTreeMap::from([(PROBLEM_JSON, vec![problem(answers)])]));
    let shown = responses.into_iter().map(|(status, content)| {
        let content = content.into_iter().map(|(media, mut schemas)| {
            let schema = if schemas.len() == 1 { schemas.remove(0) } else { json!({ "anyOf": schemas }) };
            (media.to_owned(), json!({ "schema": schema }))
        });
        let content: Map<String, Value> = content.collect();
        let about = about(&status);
        (status, json!({ "description": about, "content": content }))
    });
    let mut shown: Map<String, Value> = shown.collect();
    if operation.empty {
        shown.insert("200".to_owned(), json!({ "description": about("200") }));
    }
    Value::Object(shown)
}

/// The description of a status.
fn about(status: &str) -> &'static str {
    match status {
        "200" => "Done",
        "201" => "Made",
        "202" => "Accepted",
        "403" => "Blocked; or, with `dialect=nginx`, denied with the status in X-Tollgate-Status",
        "422" => "The configuration has problems; the old policies stay in force",
        "429" => "Some limit is exceeded",
        "500" => "The proxy is misconfigured",
        "503" => {
            "The store cannot be used, and some rule denies without it; or the server ends, or has too many \
             request bodies in memory"
        }
        _ => "Every other answer is a problem (RFC 9457)",
    }
}

fn problem(answers: &mut SchemaGenerator) -> Value {
    fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
        generator.subschema_for::<T>().to_value()
    }
    of::<ProblemBody<'_>>(answers)
}
