//! What an expression can lead to.

use toolfleet_protocol::host::HostMethod;

/// Functions that return functions that return … are followed so far.
const RETURNS_MAX: usize = 3;

/// A value worth following.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Value {
    /// `globalThis`
    Global,
    /// `host` (an empty path) or one of its namespaces.
    Host(String),
    Method(HostMethod),
    /// `globalThis.tools`
    Tools,
    /// `globalThis.manifest`
    Manifest,
    /// A file's exports, as `import * as` and `import()` give them.
    Module(usize),
    /// A function whose call gives the value.
    Returns(Box<Value>),
}

impl Value {
    /// The global variable of that name.
    pub(super) fn global(name: &str) -> Option<Self> {
        match name {
            "globalThis" => Some(Self::Global),
            "host" => Some(Self::Host(String::new())),
            "tools" => Some(Self::Tools),
            "manifest" => Some(Self::Manifest),
            _ => None,
        }
    }

    /// The namespace that is in it, which must not get out of sight.
    pub(super) fn namespace(&self) -> Option<&str> {
        match self {
            Self::Host(path) => Some(path),
            Self::Returns(value) => value.namespace(),
            _ => None,
        }
    }

    /// A function that returns it, unless that is nested too deeply.
    pub(super) fn returned(self) -> Result<Self, Self> {
        let mut depth = 0;
        let mut at = &self;
        while let Self::Returns(inner) = at {
            depth += 1;
            at = inner;
        }
        if depth < RETURNS_MAX { Ok(Self::Returns(Box::new(self))) } else { Err(self) }
    }
}
