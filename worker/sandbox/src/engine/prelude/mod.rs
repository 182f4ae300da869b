//! The JavaScript that stands ready before a plugin's: the globals that the engine doesn't have, `host`, and the
//! functions that run a tool.
//!
//! Each part is a function of the bridge and of a kit, to which it adds what later parts need. Plugin code reaches
//! neither: only what a part puts on the global object.

use super::bridge::{self, Shared};
use super::facade;
use super::random::Random;
use rquickjs::context::EvalOptions;
use rquickjs::{Ctx, Function, Object, Persistent, Promise, Result};

/// In the order in which they are evaluated.
const PARTS: &[(&str, &str)] = &[
    ("core", include_str!("core.js")),
    ("failures", include_str!("failures.js")),
    ("console", include_str!("console.js")),
    ("host", include_str!("host.js")),
    ("timers", include_str!("timers.js")),
    ("random", include_str!("random.js")),
    ("encoding", include_str!("encoding.js")),
    ("clone", include_str!("clone.js")),
    ("abort", include_str!("abort.js")),
    ("url", include_str!("url.js")),
    ("call", include_str!("call.js")),
    // Used only where a bundle is inspected, whose code could replace what this works with if it came later.
    ("inspect", include_str!("inspect.js")),
];

/// What the kit has in the end, for the engine's owner.
#[derive(Clone)]
pub struct Functions {
    pub describe: Persistent<Function<'static>>,
    pub prepare: Persistent<Function<'static>>,
    pub begin: Persistent<Function<'static>>,
    pub settle: Persistent<Function<'static>>,
    pub fire: Persistent<Function<'static>>,
    pub pending: Persistent<Function<'static>>,
    pub inspect: Persistent<Function<'static>>,
}

/// The promise of a tool's run.
pub type Begun = Persistent<Promise<'static>>;

/// Evaluates all parts.
pub fn evaluate(ctx: &Ctx<'_>, bridge: &Shared, random: &Random) -> Result<Functions> {
    let native = bridge::native(ctx, bridge, random)?;
    let kit = Object::new(ctx.clone())?;
    kit.set_prototype(None)?;
    let methods = ctx.json_parse(facade::methods())?;
    for (name, code) in PARTS {
        let part: Function<'_> = ctx.eval_with_options(*code, platform_code(name))?;
        part.call::<_, ()>((native.clone(), kit.clone(), methods.clone()))?;
    }
    let take = |name: &str| kit.get::<_, Function<'_>>(name).map(|function| Persistent::save(ctx, function));
    Ok(Functions {
        describe: take("describeAsJson")?,
        prepare: take("prepare")?,
        begin: take("begin")?,
        settle: take("settle")?,
        fire: take("fire")?,
        pending: take("pending")?,
        inspect: take("inspect")?,
    })
}

/// Platform code is evaluated in strict mode, under names that no plugin's file has.
fn platform_code(part: &str) -> EvalOptions {
    let mut options = EvalOptions::default();
    options.global = true;
    options.strict = true;
    options.filename = Some(format!("<toolfleet {part}>"));
    options
}
