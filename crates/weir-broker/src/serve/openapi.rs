//! The OpenAPI document of the REST door.

/// As `GET /openapi.json` gives it.
pub(super) const TEXT: &str = include_str!("openapi.json");

#[cfg(test)]
pub(super) mod tests {
    use super::TEXT;
    use crate::wire;
    use serde::{Serialize, de::DeserializeOwned};
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Whether an example is what the type of this name reads and writes.
    pub type Fits = fn(&str, &Value) -> Result<(), String>;

    /// The paths of a router, with their methods, by its own lines.
    fn routes(source: &str) -> BTreeSet<String> {
        let lines = source.lines().filter_map(|line| line.trim().strip_prefix(".route(\""));
        let mut found = BTreeSet::new();
        for (path, handlers) in lines.filter_map(|line| line.split_once('"')) {
            for method in ["get", "put", "post", "delete"] {
                if [format!(" {method}("), format!(".{method}(")].iter().any(|call| handlers.contains(call)) {
                    found.insert(format!("{method} {path}"));
                }
            }
        }
        found
    }

    /// A document has each path and method of the router in `source` and no other. Says how many examples it has, each of
    /// which fits.
    pub fn describes(text: &str, source: &str, fits: Fits) -> usize {
        let document: Value = serde_json::from_str(text).expect("the document is JSON");
        let paths = document["paths"].as_object().expect("it has paths");
        let methods = |(path, item): (&String, &Value)| {
            let methods = item.as_object().expect("a path has methods").keys();
            methods.map(|method| format!("{method} {path}")).collect::<Vec<_>>()
        };
        let said: BTreeSet<String> = paths.iter().flat_map(methods).collect();
        assert_eq!(said, routes(source));
        examples(&document, &document, fits)
    }

    pub fn reads_and_writes<T: Serialize + DeserializeOwned>(example: &Value) -> Result<(), String> {
        let read: T = serde_json::from_value(example.clone()).map_err(|e| e.to_string())?;
        let again = serde_json::to_value(&read).map_err(|e| e.to_string())?;
        if again == *example { Ok(()) } else { Err(format!("it is written as {again}")) }
    }

    fn fits(name: &str, example: &Value) -> Result<(), String> {
        match name {
            "Wish" => reads_and_writes::<wire::Wish>(example),
            "Wishes" => reads_and_writes::<wire::Wishes>(example),
            "Answer" => reads_and_writes::<wire::Answer>(example),
            "Answers" => reads_and_writes::<wire::Answers>(example),
            "LeaseNow" => reads_and_writes::<wire::LeaseNow>(example),
            "LeasesNow" => reads_and_writes::<wire::LeasesNow>(example),
            "ResourceNow" => reads_and_writes::<wire::ResourceNow>(example),
            "ResourcesNow" => reads_and_writes::<wire::ResourcesNow>(example),
            "Capacity" => reads_and_writes::<wire::Capacity>(example),
            "Told" => reads_and_writes::<wire::Told>(example),
            "InEffect" => reads_and_writes::<wire::InEffect>(example),
            "SessionsNow" => reads_and_writes::<wire::SessionsNow>(example),
            "AuditLines" => reads_and_writes::<wire::AuditLines>(example),
            "Problem" => reads_and_writes::<wire::Problem>(example),
            other => Err(format!("there is no {other}")),
        }
    }

    /// Looks at each example below `value`. Says how many there are.
    fn examples(document: &Value, value: &Value, fits: Fits) -> usize {
        let mut count = 0;
        if let (Some(example), Some(schema)) = (value.get("example"), value["schema"]["$ref"].as_str()) {
            let name = schema.rsplit('/').next().unwrap_or("");
            assert_eq!(fits(name, example), Ok(()), "{example}");
            // Each member of the example stands in the schema, and each that is required in the example.
            let schema = &document["components"]["schemas"][name];
            let known = schema["properties"].as_object().expect("a schema has properties");
            assert!(
                example.as_object().expect("an object").keys().all(|key| known.contains_key(key)),
                "{name}"
            );
            let required = schema["required"].as_array().expect("a schema says what is required");
            assert!(required.iter().all(|key| example.get(key.as_str().unwrap_or("")).is_some()), "{name}");
            count += 1;
        }
        let below = value.as_object().into_iter().flat_map(|members| members.values());
        let below = below.chain(value.as_array().into_iter().flatten());
        count + below.map(|value| examples(document, value, fits)).sum::<usize>()
    }

    #[test]
    fn it_describes_what_the_broker_reads_and_writes() {
        assert!(describes(TEXT, include_str!("rest.rs"), fits) > 12);
    }
}
