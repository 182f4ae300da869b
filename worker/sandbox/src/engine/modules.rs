//! Imports: only what publishing resolved, and only from the plugin's own files.

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Error, Module, Result};
use std::cell::RefCell;
use std::rc::Rc;
use toolfleet_protocol::Bundle;

/// Finds and gives the bundle's files; none before there is one.
#[derive(Clone, Default)]
pub struct Files(pub Rc<RefCell<Bundle>>);

impl Resolver for Files {
    fn resolve<'js>(
        &mut self,
        _ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        self.0
            .borrow()
            .files
            .get(base)
            .and_then(|file| file.imports.get(name))
            .cloned()
            .ok_or_else(|| Error::new_resolving_message(base, name, "it is no file of this plugin"))
    }
}

impl Loader for Files {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        let bundle = self.0.borrow();
        let file = bundle.files.get(name).ok_or_else(|| Error::new_loading(name))?;
        Module::declare(ctx.clone(), name, file.code.as_str())
    }
}
