//! The functions that the prelude calls: the socket, time, chance, text. Data crosses as text and numbers only.

use super::heap::Bound;
use super::memory;
use super::random::Random;
use crate::{socket, wire};
use base64::Engine as _;
use rquickjs::{Ctx, Function, Object, Result, TypedArray, Value};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use toolfleet_protocol::Limits;

/// A line is cut to this; the budget of a call is a few hundred of them.
const LINE_BYTES_MAX: usize = 8 * 1024;
/// What a line costs of the budget besides its text: without it a call could write as many empty lines as it has bytes.
const LINE_COST_BYTES: u64 = 16;
/// An error's getters have so long to give their texts.
const READING_MAX: Duration = Duration::from_millis(200);
/// The largest delay that a timer keeps; a longer one is as good as never within any call.
const TIMER_MS_MAX: f64 = 86_400_000.0 * 365.0;

/// How a call ended, as the prelude told.
pub enum Finished {
    Value(String),
    Failure(String),
}

/// What the prelude's functions work on.
pub struct Bridge {
    /// Where frames go; nothing is sent while a plugin is being loaded.
    pub socket: Option<&'static OwnedFd>,
    pub finished: Option<Finished>,
    pub limits: Limits,
    pub deadline: Instant,
    /// The engine was interrupted, at the deadline or when reading an error took too long.
    pub interrupted: bool,
    /// Set while what was thrown is read, whose getters are a plugin's code.
    pub reading_until: Option<Instant>,
    bound: Bound,
    started: Instant,
    log_bytes_left: u64,
    log_lines_dropped: u64,
    timers_due: BTreeSet<(Instant, u32)>,
    timers: HashMap<u32, Instant>,
}

pub type Shared = Rc<RefCell<Bridge>>;

impl Bridge {
    pub fn new(limits: Limits, deadline: Instant, bound: Bound) -> Self {
        Self {
            socket: None,
            finished: None,
            limits,
            deadline,
            interrupted: false,
            reading_until: None,
            bound,
            started: Instant::now(),
            log_bytes_left: limits.log_bytes_max,
            log_lines_dropped: 0,
            timers_due: BTreeSet::new(),
            timers: HashMap::new(),
        }
    }

    /// A call begins: its own clock, its own budgets.
    pub fn begin(&mut self, socket: &'static OwnedFd, deadline: Instant) {
        *self = Self { socket: Some(socket), ..Self::new(self.limits, deadline, self.bound.clone()) };
    }

    /// Is time over?
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.deadline || self.reading_until.is_some_and(|until| now >= until)
    }

    /// From now on what was thrown is read, or no longer.
    pub fn reading(&mut self, begins: bool) {
        self.reading_until = begins.then(|| Instant::now() + READING_MAX);
    }

    /// The next timer's time.
    pub fn next_timer(&self) -> Option<Instant> {
        self.timers_due.first().map(|(at, _)| *at)
    }

    /// Takes a timer that is due.
    pub fn due_timer(&mut self, now: Instant) -> Option<u32> {
        let (at, id) = *self.timers_due.first()?;
        if at > now {
            return None;
        }
        self.timers_due.remove(&(at, id));
        self.timers.remove(&id);
        Some(id)
    }

    fn set_timer(&mut self, id: u32, ms: f64) {
        let at = Instant::now() + Duration::from_secs_f64(ms.clamp(0.0, TIMER_MS_MAX) / 1000.0);
        self.timers.insert(id, at);
        self.timers_due.insert((at, id));
    }

    fn clear_timer(&mut self, id: u32) {
        if let Some(at) = self.timers.remove(&id) {
            self.timers_due.remove(&(at, id));
        }
    }

    fn send(&self, frame: &[u8]) {
        if let Some(socket) = self.socket
            && socket::write_all(socket, frame).is_err()
        {
            // The worker has given this call up.
            crate::process::exit_now(crate::call::EXIT_ABANDONED);
        }
    }

    fn send_host_call(&self, ordinal: u32, method: u16, arguments: &str) -> bool {
        if arguments.len() as u64 > self.limits.host_call_bytes_max {
            return false;
        }
        self.send(&wire::encode_host_call(ordinal, method, arguments));
        true
    }

    /// A line, within the call's budget.
    pub fn log(&mut self, level: u8, message: &str, fields: &str) {
        let mut cut = message.len().min(LINE_BYTES_MAX);
        while !message.is_char_boundary(cut) {
            cut -= 1;
        }
        let fields = if fields.len() > LINE_BYTES_MAX { "{\"dropped\":\"fields over 8 kB\"}" } else { fields };
        let cost = (cut + fields.len()) as u64 + LINE_COST_BYTES;
        if cost > self.log_bytes_left {
            self.log_lines_dropped += 1;
            return;
        }
        self.log_bytes_left -= cost;
        self.send(&wire::encode_log(level, &message[..cut], fields));
    }

    /// The last frame of the call, and before it what the log left out.
    pub fn send_result(&mut self, finished: &Finished) {
        if self.log_lines_dropped > 0 {
            let line = format!("{} more lines were over the call's log budget", self.log_lines_dropped);
            self.send(&wire::encode_log(2, &line, ""));
        }
        let (kind, json) = match finished {
            Finished::Value(json) => (wire::Kind::Value, json),
            Finished::Failure(json) => (wire::Kind::Failure, json),
        };
        self.send(&wire::encode(kind, &[json.as_bytes()]));
    }
}

/// The object that the prelude is given.
pub fn native<'js>(ctx: &Ctx<'js>, bridge: &Shared, random: &Random) -> Result<Object<'js>> {
    let native = Object::new(ctx.clone())?;
    let share = || Rc::clone(bridge);

    let state = share();
    native.set(
        "send",
        Function::new(ctx.clone(), move |ordinal: u32, method: u16, arguments: rquickjs::String<'_>| {
            let arguments = memory::text(&arguments)?;
            Ok::<_, rquickjs::Error>(state.borrow().send_host_call(ordinal, method, &arguments))
        })?,
    )?;
    let state = share();
    native.set(
        "log",
        Function::new(ctx.clone(), move |level: u8, message: rquickjs::String<'_>, fields: rquickjs::String<'_>| {
            let (message, fields) = (memory::text(&message)?, memory::text(&fields)?);
            state.borrow_mut().log(level, &message, &fields);
            Ok::<_, rquickjs::Error>(())
        })?,
    )?;
    let state = share();
    native.set(
        "finish",
        Function::new(ctx.clone(), move |ok: bool, json: rquickjs::String<'_>| {
            let json = well_formed(memory::text(&json)?);
            let mut bridge = state.borrow_mut();
            // The first one counts.
            if bridge.finished.is_none() {
                bridge.finished = Some(if ok { Finished::Value(json) } else { Finished::Failure(json) });
            }
            Ok::<_, rquickjs::Error>(())
        })?,
    )?;
    let state = share();
    native.set("wasRefusedMemory", Function::new(ctx.clone(), move || state.borrow().bound.was_met())?)?;
    let state = share();
    native.set("reading", Function::new(ctx.clone(), move |begins: bool| state.borrow_mut().reading(begins))?)?;
    let state = share();
    native
        .set("timerSet", Function::new(ctx.clone(), move |id: u32, ms: f64| state.borrow_mut().set_timer(id, ms))?)?;
    let state = share();
    native.set("timerClear", Function::new(ctx.clone(), move |id: u32| state.borrow_mut().clear_timer(id))?)?;
    let state = share();
    native.set("now", Function::new(ctx.clone(), move || state.borrow().started.elapsed().as_secs_f64() * 1000.0)?)?;

    let source = random.clone();
    native.set("random", Function::new(ctx.clone(), move || source.fraction())?)?;
    let source = random.clone();
    native.set("randomUUID", Function::new(ctx.clone(), move || source.uuid())?)?;
    let source = random.clone();
    native.set(
        "randomBytes",
        Function::new(ctx.clone(), move |ctx: Ctx<'js>, count: u32| {
            let mut bytes = vec![0; count as usize];
            source.fill(&mut bytes);
            TypedArray::<u8>::new(ctx, bytes)
        })?,
    )?;
    text_functions(ctx, &native)?;
    native.set("isProxy", Function::new(ctx.clone(), |value: Value<'_>| value.is_proxy())?)?;
    Ok(native)
}

fn text_functions<'js>(ctx: &Ctx<'js>, native: &Object<'js>) -> Result<()> {
    native.set(
        "utf8Encode",
        Function::new(ctx.clone(), |ctx: Ctx<'js>, text: rquickjs::String<'js>| {
            TypedArray::<u8>::new(ctx, memory::text(&text)?.into_bytes())
        })?,
    )?;
    native.set(
        "utf8Decode",
        Function::new(ctx.clone(), |bytes: TypedArray<'_, u8>, fatal: bool| -> Option<String> {
            match String::from_utf8(memory::bytes(&bytes)?) {
                Ok(text) => Some(text),
                Err(_) if fatal => None,
                Err(error) => Some(String::from_utf8_lossy(error.as_bytes()).into_owned()),
            }
        })?,
    )?;
    native.set(
        "btoa",
        Function::new(ctx.clone(), |text: rquickjs::String<'_>| -> Result<Option<String>> {
            let bytes: Option<Vec<u8>> =
                memory::text(&text)?.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
            Ok(bytes.map(|bytes| base64::engine::general_purpose::STANDARD.encode(bytes)))
        })?,
    )?;
    native.set(
        "atob",
        Function::new(ctx.clone(), |text: rquickjs::String<'_>| -> Result<Option<String>> {
            let compact: String = memory::text(&text)?.chars().filter(|c| !c.is_ascii_whitespace()).collect();
            let compact = compact.trim_end_matches('=');
            let bytes = base64::engine::general_purpose::STANDARD_NO_PAD.decode(compact).ok();
            Ok(bytes.map(|bytes| bytes.into_iter().map(char::from).collect()))
        })?,
    )?;
    url_functions(ctx, native)
}

fn url_functions<'js>(ctx: &Ctx<'js>, native: &Object<'js>) -> Result<()> {
    use super::url;
    use rquickjs::String as Text;
    native.set(
        "urlParse",
        Function::new(ctx.clone(), |text: Text<'_>, base: Option<Text<'_>>| -> Result<Option<String>> {
            let base = base.map(|base| memory::text(&base)).transpose()?;
            Ok(url::parse(&memory::text(&text)?, base.as_deref()))
        })?,
    )?;
    native.set(
        "urlSet",
        Function::new(ctx.clone(), |href: Text<'_>, name: Text<'_>, value: Text<'_>| -> Result<Option<String>> {
            Ok(url::set(&memory::text(&href)?, &memory::text(&name)?, &memory::text(&value)?))
        })?,
    )?;
    native.set(
        "formParse",
        Function::new(ctx.clone(), |text: Text<'_>| -> Result<String> { Ok(url::form_parse(&memory::text(&text)?)) })?,
    )?;
    native.set(
        "formSerialize",
        Function::new(ctx.clone(), |json: Text<'_>| -> Result<String> {
            Ok(url::form_serialize(&well_formed(memory::text(&json)?)))
        })?,
    )
}

/// JSON text in which no escape stands for half a character: the engine writes lone surrogates as `\ud800`, which
/// is JSON, but no text.
pub(super) fn well_formed(json: String) -> String {
    if !json.contains("\\ud") {
        return json;
    }
    let mut out = String::with_capacity(json.len());
    let mut rest = json.as_str();
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let escape = &rest[at..];
        // The engine escapes whole characters only where JSON must; every surrogate that it escapes is alone.
        let length = if escape.starts_with("\\u") { 6 } else { 2 }.min(escape.len());
        let is_surrogate =
            escape.starts_with("\\ud") && matches!(escape.as_bytes().get(3), Some(b'8' | b'9' | b'a'..=b'f'));
        out.push_str(if is_surrogate { "\\ufffd" } else { &escape[..length] });
        rest = &escape[length..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        let check = |json: &str, expected: &str| assert_eq!(well_formed(json.to_owned()), expected);
        check(r#""plain""#, r#""plain""#);
        check(r#""\ud800x""#, r#""\ufffdx""#);
        check(r#""\\ud800""#, r#""\\ud800""#);
        check(r#""\n\udfff\u001f\\""#, r#""\n\ufffd\u001f\\""#);
        check(r#""\ud7ff""#, r#""\ud7ff""#);
    }
}
