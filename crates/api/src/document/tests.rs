use std::collections::BTreeSet;

use super::*;

fn refs<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str));
            object.values().for_each(|v| refs(v, found));
        }
        Value::Array(list) => list.iter().for_each(|v| refs(v, found)),
        _ => {}
    }
}

/// Names of properties, and their schemas, anywhere below.
fn properties<'a>(value: &'a Value, found: &mut Vec<(&'a str, &'a Value)>) {
    match value {
        Value::Object(object) => {
            let own = object.get("properties").and_then(Value::as_object);
            found.extend(own.into_iter().flatten().map(|(n, s)| (n.as_str(), s)));
            object.values().for_each(|v| properties(v, found));
        }
        Value::Array(list) => list.iter().for_each(|v| properties(v, found)),
        _ => {}
    }
}

#[test]
fn every_route_has_an_entry_and_every_entry_a_route() {
    let (routes, document) = (routes(), document());
    for route in &routes {
        let entry = &document["paths"][route.path][route.method.name().to_lowercase()];
        assert_eq!(entry["operationId"], route.operation, "{}", route.path);
        let in_path: BTreeSet<&str> = entry["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|p| p["in"] == "path")
            .map(|p| p["name"].as_str().unwrap())
            .collect();
        assert_eq!(in_path, route.path_parameters().collect(), "{}", route.path);
    }
    let entries: usize =
        document["paths"].as_object().unwrap().values().map(|p| p.as_object().unwrap().len()).sum();
    assert_eq!(entries, routes.len());
    let names: BTreeSet<&str> = routes.iter().map(|r| r.operation).collect();
    assert_eq!(names.len(), routes.len(), "two operations have one name");
}

#[test]
fn every_reference_resolves() {
    let document = document();
    let mut all = Vec::new();
    refs(&document, &mut all);
    assert!(all.len() > 50);
    for reference in all {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
    // Also those that a problem's `type` makes.
    for kind in ProblemKind::ALL {
        let uri = kind.uri();
        let pointer = uri.split_once('#').unwrap().1;
        assert_eq!(document.pointer(pointer).unwrap()["status"], kind.status());
    }
}

#[test]
fn no_two_schemas_have_one_name() {
    let (document, conflicts) = of_routes(&routes());
    assert_eq!(conflicts, Vec::<String>::new(), "read and written otherwise");
    // Where two types claim one name, the generator gives the second a number.
    let names = document["components"]["schemas"].as_object().unwrap();
    let numbered = |name: &&String| {
        let bare = name.trim_end_matches(|c: char| c.is_ascii_digit());
        bare != name.as_str() && names.contains_key(bare)
    };
    assert_eq!(names.keys().find(numbered), None);
}

#[test]
fn every_operation_says_its_role_and_its_problems() {
    for (path, operations) in document()["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            for status in ["400", "401", "403", "429", "500"] {
                assert!(responses.contains_key(status), "{method} {path} lacks {status}");
            }
            assert!(responses.keys().any(|status| status.starts_with('2')), "{method} {path}");
            let role = operation["security"][0]["bearer"][0].as_str().unwrap();
            assert!(["read", "operate", "admin"].contains(&role), "{method} {path}: {role}");
        }
    }
}

#[test]
fn only_what_reads_is_for_everyone() {
    for route in routes().iter().filter(|route| route.changes) {
        assert!(route.role > crate::role::AccessRole::Read, "{}", route.operation);
        assert!(route.method != HttpMethod::Get, "{}", route.operation);
    }
}

#[test]
fn every_property_is_described_and_no_instant_is_a_number_of_nanoseconds() {
    let document = document();
    let mut all = Vec::new();
    properties(&document["components"]["schemas"], &mut all);
    assert!(all.len() > 100);
    let instants = ["start_ns", "end_ns", "at_ns", "known_ns", "breach_ns", "first_ns", "last_ns"];
    for (name, schema) in all {
        assert!(!instants.contains(&name), "{name} is an instant: {schema}");
    }
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for (schema_name, schema) in schemas {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let described =
                property.get("description").is_some() || property.get("const").is_some();
            assert!(described, "{schema_name}.{name} has no description");
        }
    }
}

#[test]
fn the_document_is_the_one_that_is_checked_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/sonde-v1.json");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let made = document();
    assert!(
        kept == made,
        "openapi/sonde-v1.json is old: \
         cargo run -p sonde-api --example openapi > openapi/sonde-v1.json\nfirst difference: {}",
        difference("", &kept, &made).unwrap_or_default()
    );
}

fn difference(at: &str, a: &Value, b: &Value) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|key| {
                let of = |o: &Map<String, Value>| o.get(key).cloned().unwrap_or_default();
                difference(&format!("{at}/{key}"), &of(a), &of(b))
            })
        }
        _ => (a != b).then(|| format!("{at}: {a} is now {b}")),
    }
}

/// Every version in `openapi/blessed` can still be served: see its README.
#[test]
fn a_blessed_version_loses_nothing() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../openapi/blessed");
    let made = document();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "json") {
            continue;
        }
        let old: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let lost = lost(&old, &made);
        assert!(lost.is_empty(), "{}: {lost:#?}", path.display());
    }
}

/// What a client of the old document would miss in the new one.
fn lost(old: &Value, new: &Value) -> Vec<String> {
    let mut lost = Vec::new();
    for (path, operations) in old["paths"].as_object().into_iter().flatten() {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            let now = &new["paths"][path][method];
            let at = format!("{method} {path}");
            if now["operationId"] != operation["operationId"] {
                lost.push(format!("{at}: operation {}", operation["operationId"]));
                continue;
            }
            let named = |o: &Value| -> Vec<(String, bool)> {
                let all = o["parameters"].as_array().into_iter().flatten();
                all.filter_map(|p| Some((p["name"].as_str()?.to_owned(), p["required"] == true)))
                    .collect()
            };
            let (before, after) = (named(operation), named(now));
            let gone = before.iter().filter(|(n, _)| !after.iter().any(|(m, _)| m == n));
            lost.extend(gone.map(|(n, _)| format!("{at}: parameter {n}")));
            let asked = after
                .iter()
                .filter(|(n, required)| *required && !before.contains(&(n.clone(), true)));
            lost.extend(asked.map(|(n, _)| format!("{at}: parameter {n} is required now")));
        }
    }
    let sent = sent(new);
    for (name, schema) in old["components"]["schemas"].as_object().into_iter().flatten() {
        let now = &new["components"]["schemas"][name];
        for (property, _) in schema["properties"].as_object().into_iter().flatten() {
            if now["properties"].get(property).is_none() {
                lost.push(format!("{name}.{property}"));
            }
        }
        let required = strings(&now["required"]);
        let asked = required.iter().filter(|p| schema["properties"].get(**p).is_none());
        let asked = asked.filter(|_| sent.contains(name.as_str()));
        lost.extend(asked.map(|p| format!("{name}.{p} is required now")));
    }
    lost
}

/// Names of the schemas that clients send.
fn sent(document: &Value) -> BTreeSet<&str> {
    let mut found = Vec::new();
    let operations = document["paths"].as_object().unwrap().values();
    for operation in operations.flat_map(|path| path.as_object().unwrap().values()) {
        refs(&operation["requestBody"], &mut found);
    }
    let mut names = BTreeSet::new();
    while let Some(reference) = found.pop() {
        let name = reference.rsplit('/').next().unwrap();
        if names.insert(name) {
            refs(&document["components"]["schemas"][name], &mut found);
        }
    }
    names
}

#[test]
fn what_a_client_would_miss_is_found() {
    let old = document();
    assert_eq!(lost(&old, &old), Vec::<String>::new());
    let mut new = old.clone();
    new["paths"].as_object_mut().unwrap().remove("/sonde/v1/station");
    let units = new["paths"]["/sonde/v1/units"]["get"]["parameters"].as_array_mut().unwrap();
    units.retain(|p| p["name"] != "limit");
    let schema = new["components"]["schemas"]["UnitEntry"]["properties"].as_object_mut().unwrap();
    schema.remove("phase");
    let order = &mut new["components"]["schemas"]["TargetOrder"];
    order["properties"]["owner"] = json!({ "type": "string" });
    order["required"].as_array_mut().unwrap().push("owner".into());
    // In an answer the same harms nobody.
    let about = &mut new["components"]["schemas"]["StationAbout"];
    about["properties"]["owner"] = json!({ "type": "string" });
    about["required"].as_array_mut().unwrap().push("owner".into());
    assert_eq!(
        lost(&old, &new),
        [
            "get /sonde/v1/station: operation \"station_info\"",
            "get /sonde/v1/units: parameter limit",
            "TargetOrder.owner is required now",
            "UnitEntry.phase",
        ]
    );
}
