//! The JavaScript that stands ready before a plugin's: the globals that the engine doesn't have, `host`, and the
//! functions that run a tool.
//!
//! Each part is a function of the bridge and of a kit, to which it adds what later parts need. Plugin code reaches
//! neither: only what a part puts on the global object.

use super::bridge::{self, Shared};
use super::facade;
use super::random::Random;
use rquickjs::{Context, Ctx, Function, Module, Object, Persistent, Promise, Result, Runtime, WriteOptions};

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
    pub rehearse: Persistent<Function<'static>>,
    pub begin: Persistent<Function<'static>>,
    pub settle: Persistent<Function<'static>>,
    pub fire: Persistent<Function<'static>>,
    pub pending: Persistent<Function<'static>>,
    pub inspect: Persistent<Function<'static>>,
}

/// The promise of a tool's run.
pub type Begun = Persistent<Promise<'static>>;

/// Each part as bytecode, made by an engine of its own: nothing of the compiling is left where plugins are loaded.
fn compile() -> Result<Vec<Vec<u8>>> {
    let context = Context::full(&Runtime::new()?)?;
    context.with(|ctx| PARTS.iter().map(|(name, code)| compile_part(&ctx, name, code)).collect())
}

fn compile_part(ctx: &Ctx<'_>, name: &str, code: &str) -> Result<Vec<u8>> {
    // A name that no plugin's file has. The places in it stay, for stacks; its text is nobody's.
    let module = Module::declare(ctx.clone(), format!("<toolfleet {name}>"), code)?;
    module.write(WriteOptions { strip_source: true, ..WriteOptions::default() })
}

/// Evaluates all parts.
pub fn evaluate(ctx: &Ctx<'_>, bridge: &Shared, random: &Random) -> Result<Functions> {
    let compiled = compile()?;
    let native = bridge::native(ctx, bridge, random)?;
    let kit = Object::new(ctx.clone())?;
    kit.set_prototype(None)?;
    let methods = ctx.json_parse(facade::methods())?;
    // All are read before the first is run: what they make then lies together, and a call, which writes to some of it,
    // copies fewer pages of its template.
    let parts: Vec<Function<'_>> = compiled.iter().map(|bytes| read_part(ctx, bytes)).collect::<Result<_>>()?;
    for part in parts {
        part.call::<_, ()>((native.clone(), kit.clone(), methods.clone()))?;
    }
    let take = |name: &str| kit.get::<_, Function<'_>>(name).map(|function| Persistent::save(ctx, function));
    Ok(Functions {
        describe: take("describeAsJson")?,
        prepare: take("prepare")?,
        rehearse: take("rehearse")?,
        begin: take("begin")?,
        settle: take("settle")?,
        fire: take("fire")?,
        pending: take("pending")?,
        inspect: take("inspect")?,
    })
}

fn read_part<'js>(ctx: &Ctx<'js>, bytes: &[u8]) -> Result<Function<'js>> {
    // SAFETY: the bytes were written by `compile`, by the same engine in the same program, and never left it.
    let module = unsafe { Module::load(ctx.clone(), bytes) }?;
    let (module, _) = module.eval()?;
    module.get("default")
}
