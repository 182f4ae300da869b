//! `toolfleet call`

use super::plugin::read_input;
use crate::args::{ApiArg, InputArg};
use crate::client::Client;
use crate::exit::{DONE, FAILED};
use crate::output;
use anyhow::{Context, Result};
use serde_json::value::RawValue;
use toolfleet_protocol::{CallResult, Outcome};

/// Longer than the longest tool call may take.
const WAIT_S: u32 = 120;

#[derive(serde::Serialize)]
struct Request<'a> {
    agent: &'a str,
    tool: &'a str,
    input: Box<RawValue>,
}

pub async fn run(agent: &str, tool: &str, input: &InputArg, api: &ApiArg, json: bool) -> Result<u8> {
    let request = Request { agent, tool, input: read_input(input)? };
    let client = Client::new(api)?;
    let answer = client.post("/v1/calls", serde_json::to_string(&request)?, Some(WAIT_S)).await?.success()?;
    if json {
        output::json(&answer);
    }
    let result: CallResult = serde_json::from_value(answer.clone())
        .with_context(|| format!("the call has no result after {WAIT_S} s, but goes on: {answer}"))?;
    if !json {
        output::result(&result);
    }
    Ok(if matches!(result.outcome, Outcome::Ok { .. }) { DONE } else { FAILED })
}
