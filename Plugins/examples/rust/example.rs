//! Three operators in Rust, without crates. rxd.rs implements the contract.
mod rxd;

use rxd::{Input, Kind, Output, Refusal, Row, Scope, Stream, Value, Verdict};

/// A member's name, which must not be empty.
fn name(parameters: Value, parameter: &'static str) -> Result<String, Refusal> {
    match parameters.member(parameter).text() {
        Some(text) if !text.is_empty() => Ok(text.to_string()),
        _ => Err(Refusal { message: "the name of the member is empty".to_string(), at: parameter }),
    }
}

/// exampleSlug: "Hello, World" becomes "hello-world".
struct Slug {
    field: String,
    to: String,
}

impl Row for Slug {
    fn open(parameters: Value) -> Result<Self, Refusal> {
        Ok(Slug { field: name(parameters, "field")?, to: name(parameters, "as")? })
    }

    fn row<'a>(&self, scope: &'a Scope, event: Value<'a>) -> Result<Verdict<'a>, String> {
        let text = event.member(&self.field).text().ok_or_else(|| format!("no text '{}'", self.field))?;
        let mut slug = String::with_capacity(text.len());
        for character in text.chars().flat_map(char::to_lowercase) {
            if character.is_alphanumeric() {
                slug.push(character);
            } else if !slug.is_empty() && !slug.ends_with('-') {
                slug.push('-');
            }
        }
        let slug = slug.trim_end_matches('-');
        if slug.is_empty() {
            return Ok(Verdict::Drop);
        }
        Ok(Verdict::Pass(event.with(&self.to, scope.text(slug))))
    }
}

/// exampleChanges: passes an event if a member differs from that of the previous event.
struct Changes {
    field: String,
    /// The last value, encoded.
    last: Option<Vec<u8>>,
}

impl Stream for Changes {
    fn open(parameters: Value, state: Option<(&[u8], u32)>) -> Result<Self, Refusal> {
        let last = match state {
            Some((bytes, 1)) if !bytes.is_empty() => Some(bytes.to_vec()),
            _ => None,
        };
        Ok(Changes { field: name(parameters, "field")?, last })
    }

    fn process<'a>(&mut self, _: &'a Scope, input: Input<'a>, output: &mut Output) {
        if let Input::Event(event) = input {
            let value = event.member(&self.field);
            if value.kind() == Kind::Absent {
                return output.reject(&format!("no member '{}'", self.field));
            }
            let encoded = value.encode();
            if self.last.as_deref() != Some(encoded) {
                self.last = Some(encoded.to_vec());
                output.send(event);
            }
        }
    }

    fn save(&self) -> Vec<u8> {
        self.last.clone().unwrap_or_default()
    }
}

/// exampleFirst: passes the first events; the output completes after the last of them.
struct First {
    left: u64,
}

impl Stream for First {
    fn open(parameters: Value, state: Option<(&[u8], u32)>) -> Result<Self, Refusal> {
        let count = parameters.member("count").int().max(1) as u64;
        let saved = state.and_then(|(bytes, _)| bytes.try_into().ok()).map(u64::from_le_bytes);
        Ok(First { left: saved.unwrap_or(count) })
    }

    fn process<'a>(&mut self, _: &'a Scope, input: Input<'a>, output: &mut Output) {
        if let Input::Event(event) = input {
            // Inputs of the batch after the last one count as not taken.
            if self.left == 0 {
                return;
            }
            self.left -= 1;
            output.send(event);
            if self.left == 0 {
                output.finish();
            }
        }
    }

    fn save(&self) -> Vec<u8> {
        self.left.to_le_bytes().to_vec()
    }
}

static COMPONENTS: [rxd::Component; 3] = [
    rxd::row::<Slug>("exampleSlug"),
    rxd::stream::<Changes>("exampleChanges"),
    rxd::stream::<First>("exampleFirst"),
];
static PLUGIN: rxd::Plugin = rxd::plugin(&COMPONENTS, include_str!("spec.json"));

#[no_mangle]
#[allow(non_upper_case_globals)]
pub static rxd_plugin_magic: rxd::Magic = rxd::MAGIC;

/// # Safety
/// Called by rxd.
#[no_mangle]
pub unsafe extern "C" fn rxd_plugin_init(
    contract: u32, host: *const rxd::Host, plugin: *mut *const rxd::Plugin, problem: *mut rxd::Text,
) -> i32 {
    rxd::init(&PLUGIN, contract, host, plugin, problem)
}
