//! Positional arguments, one by one. What doesn't fit is told by the parameter's name.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use toolfleet_protocol::host::{HostError, HostErrorName, HostMethod};

/// The arguments of one host call.
pub struct Arguments {
    method: HostMethod,
    values: std::vec::IntoIter<Box<RawValue>>,
}

impl Arguments {
    pub fn parse(method: HostMethod, array: &RawValue) -> Result<Self, HostError> {
        let values: Vec<Box<RawValue>> = serde_json::from_str(array.get()).map_err(|_| {
            HostError::new(HostErrorName::TypeError, format!("host.{}: the arguments are no list", method.row().path))
        })?;
        Ok(Self { method, values: values.into_iter() })
    }

    /// The next argument, which must be there.
    pub fn required<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, HostError> {
        match self.values.next() {
            Some(value) => self.read(name, &value),
            None => Err(self.wrong(format!("{name} is missing: it takes ({})", self.method.row().parameters))),
        }
    }

    /// The next argument, if it is there and not null.
    pub fn optional<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, HostError> {
        match self.values.next() {
            Some(value) if value.get() != "null" => self.read(name, &value).map(Some),
            _ => Ok(None),
        }
    }

    /// There must be no more.
    pub fn end(mut self) -> Result<(), HostError> {
        match self.values.next() {
            None => Ok(()),
            Some(_) => Err(self.wrong(format!("too many arguments: it takes ({})", self.method.row().parameters))),
        }
    }

    /// An error in the words of this method.
    pub fn wrong(&self, what: String) -> HostError {
        HostError::new(HostErrorName::TypeError, format!("host.{}: {what}", self.method.row().path))
    }

    fn read<T: DeserializeOwned>(&self, name: &str, value: &RawValue) -> Result<T, HostError> {
        serde_json::from_str(value.get()).map_err(|error| {
            // The place within the argument's own text helps nobody who didn't write that text.
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or(&text);
            self.wrong(format!("{name}: {what}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolfleet_protocol::host::HashOptions;

    #[test]
    fn what_is_wrong_is_told_by_name() {
        let check = |json: &str, told: &str| {
            let raw = RawValue::from_string(json.to_owned()).unwrap();
            let read = Arguments::parse(HostMethod::CryptoHash, &raw).and_then(|mut arguments| {
                let options = arguments.required::<HashOptions>("options")?;
                arguments.end()?;
                Ok(options)
            });
            let error = read.unwrap_err();
            assert_eq!(error.name, HostErrorName::TypeError);
            assert!(error.message.contains(told), "{json}: {}", error.message);
        };
        check("[]", "options is missing");
        check("{}", "no list");
        check("[1]", "host.crypto.hash: options: invalid type: integer `1`");
        check(r#"[{"algorithm":"md5","data":""}]"#, "unknown variant `md5`, expected one of `sha256`");
        check(r#"[{"algorithm":"sha256"}]"#, "missing field `data`");
        check(r#"[{"algorithm":"sha256","data":"","colour":1}]"#, "unknown field `colour`");
        check(r#"[{"algorithm":"sha256","data":""},2]"#, "too many arguments");
    }
}
