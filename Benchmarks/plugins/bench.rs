//! Two operators that pass one event in a hundred, as `filter: event.n % 100 == 0` does: a row operator, and one with batches.
#[path = "../../Plugins/examples/rust/rxd.rs"]
mod rxd;

use rxd::{Input, Output, Refusal, Row, Scope, Stream, Value, Verdict};

struct Hundredth;

fn passes(event: Value) -> bool {
    event.member("n").int() % 100 == 0
}

impl Row for Hundredth {
    fn open(_: Value) -> Result<Self, Refusal> {
        Ok(Hundredth)
    }

    fn row<'a>(&self, _: &'a Scope, event: Value<'a>) -> Result<Verdict<'a>, String> {
        Ok(if passes(event) { Verdict::Pass(event) } else { Verdict::Drop })
    }
}

impl Stream for Hundredth {
    fn open(_: Value, _: Option<(&[u8], u32)>) -> Result<Self, Refusal> {
        Ok(Hundredth)
    }

    fn process<'a>(&mut self, _: &'a Scope, input: Input<'a>, output: &mut Output) {
        if let Input::Event(event) = input {
            if passes(event) {
                output.send(event);
            }
        }
    }

    fn save(&self) -> Vec<u8> {
        Vec::new()
    }
}

static COMPONENTS: [rxd::Component; 2] =
    [rxd::row::<Hundredth>("benchRowRust"), rxd::stream::<Hundredth>("benchBatchRust")];
static SPEC: &str = r#"{"plugin":"bench-rust","version":"1","summary":"For measuring.","components":[
{"kind":"operator","form":"row","name":"benchRowRust","summary":"Passes one event in a hundred."},
{"kind":"operator","name":"benchBatchRust","summary":"Passes one event in a hundred."}]}"#;
static PLUGIN: rxd::Plugin = rxd::plugin(&COMPONENTS, SPEC);

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
