//! What the prelude needs to know of the host API, from the one table.

use toolfleet_protocol::host::{HostMethod, Style, TABLE};

/// A JSON array of `{number, path}`, and `level` on the methods that log.
pub fn methods() -> String {
    let rows: Vec<serde_json::Value> = TABLE
        .iter()
        .map(|row| {
            let mut entry = serde_json::json!({ "number": row.method as u16, "path": row.path });
            if row.style == Style::Notify {
                entry["level"] = log_level(row.method).into();
            }
            entry
        })
        .collect();
    serde_json::Value::Array(rows).to_string()
}

/// The level on the wire; methods that return at once all log.
fn log_level(method: HostMethod) -> u8 {
    match method {
        HostMethod::LogDebug => 0,
        HostMethod::LogWarn => 2,
        HostMethod::LogError => 3,
        _ => 1,
    }
}
