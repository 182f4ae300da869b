//! `host.crypto`

use super::arguments::Arguments;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, Mac};
use rand::TryRngCore;
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use toolfleet_protocol::host::{
    BinaryEncoding, HashAlgorithm, HashOptions, HmacOptions, HostError, HostErrorName, TextEncoding,
};

const RANDOM_BYTES_MAX: u32 = 65_536;

pub fn hash(mut arguments: Arguments) -> Result<String, HostError> {
    let options: HashOptions = arguments.required("options")?;
    let data = decode(&arguments, "options.data", options.data, options.data_encoding)?;
    arguments.end()?;
    let digest = match options.algorithm {
        HashAlgorithm::Sha256 => Sha256::digest(&data).to_vec(),
        HashAlgorithm::Sha384 => Sha384::digest(&data).to_vec(),
        HashAlgorithm::Sha512 => Sha512::digest(&data).to_vec(),
    };
    Ok(encode(&digest, options.encoding.unwrap_or(BinaryEncoding::Hex)))
}

pub fn hmac(mut arguments: Arguments) -> Result<String, HostError> {
    let options: HmacOptions = arguments.required("options")?;
    let key = decode(&arguments, "options.key", options.key, options.key_encoding)?;
    let data = decode(&arguments, "options.data", options.data, options.data_encoding)?;
    arguments.end()?;
    macro_rules! tag {
        ($hash:ty) => {{
            let mut mac = Hmac::<$hash>::new_from_slice(&key).expect("HMAC takes keys of any length");
            mac.update(&data);
            mac.finalize().into_bytes().to_vec()
        }};
    }
    let tag = match options.algorithm {
        HashAlgorithm::Sha256 => tag!(Sha256),
        HashAlgorithm::Sha384 => tag!(Sha384),
        HashAlgorithm::Sha512 => tag!(Sha512),
    };
    Ok(encode(&tag, options.encoding.unwrap_or(BinaryEncoding::Hex)))
}

pub fn random_bytes(mut arguments: Arguments) -> Result<String, HostError> {
    let size: u32 = arguments.required("size")?;
    let encoding: Option<BinaryEncoding> = arguments.optional("encoding")?;
    if !(1..=RANDOM_BYTES_MAX).contains(&size) {
        return Err(arguments.wrong(format!("size must be 1 to {RANDOM_BYTES_MAX}, but is {size}")));
    }
    arguments.end()?;
    let mut bytes = vec![0; size as usize];
    rand::rngs::OsRng
        .try_fill_bytes(&mut bytes)
        .map_err(|_| HostError::new(HostErrorName::HostError, "the machine gives no random numbers now"))?;
    Ok(encode(&bytes, encoding.unwrap_or(BinaryEncoding::Base64)))
}

pub fn random_uuid(arguments: Arguments) -> Result<String, HostError> {
    arguments.end()?;
    Ok(uuid::Uuid::new_v4().to_string())
}

pub fn timing_safe_equal(mut arguments: Arguments) -> Result<bool, HostError> {
    let (a, b): (String, String) = (arguments.required("a")?, arguments.required("b")?);
    arguments.end()?;
    // Digests have one length, so that neither length nor content shows in the time.
    let (a, b) = (Sha256::digest(a.as_bytes()), Sha256::digest(b.as_bytes()));
    Ok(a.ct_eq(&b).into())
}

fn decode(arguments: &Arguments, name: &str, text: String, encoding: TextEncoding) -> Result<Vec<u8>, HostError> {
    match encoding {
        TextEncoding::Utf8 => Ok(text.into_bytes()),
        TextEncoding::Base64 => {
            STANDARD.decode(&text).map_err(|error| arguments.wrong(format!("{name} is no base64: {error}")))
        }
    }
}

fn encode(bytes: &[u8], encoding: BinaryEncoding) -> String {
    match encoding {
        BinaryEncoding::Hex => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        BinaryEncoding::Base64 => STANDARD.encode(bytes),
        BinaryEncoding::Base64url => URL_SAFE_NO_PAD.encode(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;
    use toolfleet_protocol::host::HostMethod;

    fn arguments(method: HostMethod, json: &str) -> Arguments {
        Arguments::parse(method, &RawValue::from_string(json.to_owned()).unwrap()).unwrap()
    }

    #[test]
    fn hashes_are_those_of_the_standards() {
        // FIPS 180-4's example, and test case 2 of RFC 4231.
        let hashed = hash(arguments(HostMethod::CryptoHash, r#"[{"algorithm":"sha256","data":"abc"}]"#)).unwrap();
        assert_eq!(hashed, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let tagged = hmac(arguments(
            HostMethod::CryptoHmac,
            r#"[{"algorithm":"sha256","key":"Jefe","data":"what do ya want for nothing?"}]"#,
        ));
        assert_eq!(tagged.unwrap(), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn random_bytes_are_as_many_as_asked_for() {
        let bytes = random_bytes(arguments(HostMethod::CryptoRandomBytes, r#"[16,"hex"]"#)).unwrap();
        assert_eq!(bytes.len(), 32);
        for bad in ["[0]", "[65537]", "[-1]", "[\"a\"]", "[1,\"octal\"]"] {
            let error = random_bytes(arguments(HostMethod::CryptoRandomBytes, bad)).unwrap_err();
            assert_eq!(error.name, HostErrorName::TypeError, "{bad}");
        }
    }

    #[test]
    fn equality_is_right() {
        let equal = |json: &str| timing_safe_equal(arguments(HostMethod::CryptoTimingSafeEqual, json)).unwrap();
        assert!(equal(r#"["a","a"]"#) && !equal(r#"["a","b"]"#) && !equal(r#"["a","aa"]"#));
    }
}
