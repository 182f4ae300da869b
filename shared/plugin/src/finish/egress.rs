//! The rules of `globalThis.manifest`.

use super::tools::what;
use crate::build::Draft;
use crate::problem::{Place, Problem};
use serde_json::Value;
use toolfleet_protocol::{EgressRule, Fact};

/// Hosts that one plugin may name. Its installer is shown them all.
const EGRESS_MAX: usize = 64;
/// Names that never lead to the internet.
const PRIVATE: [&str; 8] = ["localhost", "local", "internal", "intranet", "lan", "home.arpa", "corp", "private"];

/// The hosts that `host.fetch` may reach.
pub(super) fn check(draft: &Draft, manifest: &Fact, problems: &mut Vec<Problem>) -> Vec<EgressRule> {
    let place = draft.derived.manifest.as_ref().unwrap_or(&draft.derived.entry);
    let mut rules = Vec::new();
    let before = problems.len();
    match manifest {
        Fact::Absent => {}
        Fact::Json(Value::Object(members)) => {
            for key in members.keys().filter(|key| *key != "egress") {
                let shown: String = key.chars().take(80).collect();
                problems.push(
                    Problem::warning(
                        "manifest-object-key",
                        format!("globalThis.manifest has {shown:?}, which means nothing"),
                        "take it away; only egress is known, all else stands in plugin.json",
                    )
                    .at(place),
                );
            }
            match members.get("egress") {
                None => {}
                Some(Value::Array(entries)) => rules = entries_of(entries, place, problems),
                Some(_) => problems.push(
                    Problem::error(
                        "egress-type",
                        "egress must be an array of host names",
                        "write egress: [\"api.example.com\"]",
                    )
                    .at(place),
                ),
            }
        }
        other => problems.push(
            Problem::error(
                "manifest-object",
                format!("globalThis.manifest is {}, and must be plain data", what(other)),
                "write globalThis.manifest = { egress: [\"api.example.com\"] }",
            )
            .at(place),
        ),
    }
    if problems[before..].iter().any(|problem| problem.severity == crate::Severity::Error) {
        return rules;
    }
    match (&draft.derived.fetch, rules.is_empty()) {
        (Some(fetch), true) => problems.push(
            Problem::warning(
                "fetch-without-egress",
                "host.fetch is used, but no host is listed: every request will be refused",
                "list the hosts: globalThis.manifest = { egress: [\"api.example.com\"] }",
            )
            .at(fetch),
        ),
        (None, false) => problems.push(
            Problem::warning(
                "egress-unused",
                "hosts are listed in egress, but host.fetch is never used",
                "take egress away: whoever installs the plugin sees it",
            )
            .at(place),
        ),
        _ => {}
    }
    rules
}

fn entries_of(entries: &[Value], place: &Place, problems: &mut Vec<Problem>) -> Vec<EgressRule> {
    let mut rules = Vec::new();
    if entries.len() > EGRESS_MAX {
        problems.push(
            Problem::error(
                "egress-many",
                format!("egress has {} entries, and {EGRESS_MAX} are the most", entries.len()),
                "use \"*.example.com\" for many hosts of one service",
            )
            .at(place),
        );
        return rules;
    }
    for (index, entry) in entries.iter().enumerate() {
        match entry_of(entry) {
            Ok(rule) if rules.contains(&rule) => problems.push(
                Problem::warning("egress-twice", format!("egress lists {rule} twice"), "keep one of them").at(place),
            ),
            Ok(rule) => rules.push(rule),
            Err((code, message, remedy)) => {
                problems.push(Problem::error(code, format!("egress[{index}]: {message}"), remedy).at(place));
            }
        }
    }
    // One source makes one release.
    rules.sort();
    rules
}

fn entry_of(entry: &Value) -> Result<EgressRule, (&'static str, String, &'static str)> {
    let remedy = "write a bare host name such as \"api.example.com\" or \"*.example.com\"";
    let Value::String(text) = entry else {
        return Err(("egress-type", "an entry must be a text".into(), remedy));
    };
    let ascii = to_ascii(text).unwrap_or_else(|| text.clone());
    let rule = EgressRule::parse(&ascii).map_err(|error| ("egress-entry", error.to_string(), remedy))?;
    let shown = rule.to_string();
    let name = shown.strip_prefix("*.").unwrap_or(&shown);
    let is_below =
        |private: &str| name.strip_suffix(private).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    if PRIVATE.into_iter().any(is_below) || !name.contains('.') {
        let message = format!("{shown:?} is a name of private networks, which no plugin may reach");
        return Err(("egress-private", message, "name a host of the internet"));
    }
    Ok(rule)
}

/// An international name in its ASCII form. `None` leaves the text to the rule's own judgement.
fn to_ascii(text: &str) -> Option<String> {
    if text.is_ascii() {
        return None;
    }
    let (prefix, name) = match text.strip_prefix("*.") {
        Some(name) => ("*.", name),
        None => ("", text),
    };
    // A URL's host is decoded and mapped before it is understood; only names that need no such repair are taken.
    if name.contains(['/', '%', ':', '@', '?', '#', '[', '\\']) {
        return None;
    }
    match url::Host::parse(name).ok()? {
        url::Host::Domain(ascii) => Some(format!("{prefix}{ascii}")),
        url::Host::Ipv4(address) => Some(format!("{prefix}{address}")),
        url::Host::Ipv6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_taken_or_told() {
        let check = |text: &str| entry_of(&Value::from(text)).map(|rule| rule.to_string()).map_err(|error| error.0);
        for (text, expected) in [
            ("api.example.com", Ok("api.example.com")),
            ("API.Example.com.", Ok("api.example.com")),
            ("*.example.com", Ok("*.example.com")),
            ("bücher.example", Ok("xn--bcher-kva.example")),
            ("*.bücher.example", Ok("*.xn--bcher-kva.example")),
            ("counter.test", Ok("counter.test")),
            ("https://example.com", Err("egress-entry")),
            ("example.com:443", Err("egress-entry")),
            ("example.com/x", Err("egress-entry")),
            ("127.0.0.1", Err("egress-entry")),
            ("\u{ff11}27.0.0.1", Err("egress-entry")),
            ("[::1]", Err("egress-entry")),
            ("*", Err("egress-entry")),
            ("*.com", Err("egress-entry")),
            ("", Err("egress-entry")),
            ("localhost", Err("egress-private")),
            ("a.localhost", Err("egress-private")),
            ("metadata.google.internal", Err("egress-private")),
            ("printer.local", Err("egress-private")),
            ("intranet", Err("egress-private")),
        ] {
            assert_eq!(check(text), expected.map(str::to_owned), "{text}");
        }
        assert!(entry_of(&Value::from(1)).is_err());
    }
}
