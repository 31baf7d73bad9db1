// Skeletons in Rust and Swift.
extension PluginTemplate {
  // MARK: Rust

  var rust: String {
    """
    //! A plugin for rxd: a pure function of an event. rxd.rs has the contract; it needs no crates.
    mod rxd;

    use rxd::{Kind, Refusal, Row, Scope, Value, Verdict};

    /// \(component): adds a text to each event.
    struct \(module) {
        text: String,
    }

    impl Row for \(module) {
        fn open(parameters: Value) -> Result<Self, Refusal> {
            Ok(\(module) { text: parameters.member("text").text().unwrap_or("").to_string() })
        }

        // Called on any thread, several at once.
        fn row<'a>(&self, scope: &'a Scope, event: Value<'a>) -> Result<Verdict<'a>, String> {
            if event.kind() != Kind::Object {
                return Err("the event is not an object".to_string());
            }
            Ok(Verdict::Pass(event.with("text", scope.text(&self.text))))
        }
    }

    static COMPONENTS: [rxd::Component; 1] = [rxd::row::<\(module)>("\(component)")];
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

    """
  }

  var rustMakefile: String {
    """
    RUSTC ?= rustc

    \(name).so: \(name).rs rxd.rs spec.json
    \t$(RUSTC) --edition 2021 --crate-type cdylib --crate-name plugin -O -o $@ \(name).rs

    .PHONY: clean
    clean:
    \trm -f \(name).so

    """
  }

  // MARK: Swift

  /// The component's name as a type name.
  var module: String { component.prefix(1).uppercased() + component.dropFirst() }

  func manifest(_ package: SwiftPackage?) -> String {
    let dependency =
      switch package {
      case .path(let path): ".package(name: \"RxdPlugin\", path: \"\(path)\")"
      case .url(let url): ".package(url: \"\(url)\", branch: \"main\")"
      case nil: ""
      }
    var identity = "RxdPlugin"
    if case .url(let url) = package {
      identity = String(url.split(separator: "/").last ?? "").replacing(".git", with: "")
    }
    return """
      // swift-tools-version: 6.1
      import PackageDescription

      let package = Package(
        name: "\(name)",
        products: [.library(name: "\(name)", type: .dynamic, targets: ["\(module)"])],
        dependencies: [\(dependency)],
        targets: [.target(name: "\(module)", dependencies: [.product(name: "RxdPlugin", package: "\(identity)")])],
        swiftLanguageModes: [.v6]
      )

      """
  }

  var swift: String {
    """
    // A plugin for rxd: a pure function of an event. It is declared as rxd's own operators are.
    import RxdPlugin

    /// `\(component)`: adds a text to each event.
    struct \(module): PureOperator {
      var text = "hello"

      static let changesValue = true

      static let spec = ComponentSpec<\(module)>(
        "\(component)",
        summary: "Adds a text to each event.",
        parameters: [.init("text", \\.text, primary: true, "The text.")],
        examples: [
          .marble(
            "a greeting", "\(component): hello", in: "a|", out: "b|",
            values: ["a": "{name: Ada}", "b": "{name: Ada, text: hello}"])
        ])

      static let inputType = EventType(.map(.string, .dyn))
      func outputType(_ inputs: [EventType]) -> EventType { EventType(.map(.string, .dyn)) }

      func makePureStep() -> PureStep { Step(text) }

      final class Step: PureStep {
        private let text: String
        init(_ text: String) { self.text = text }

        override func transform(_ value: inout Value, _ frame: EventFrame) -> PureVerdict {
          guard value.is(.map) else { return refuse(.unexpectedValue, "the event is \\(value.kindName), no object", frame) }
          value = value.with("text", frame.arena.string(text))
          return .pass
        }
      }
    }

    @_cdecl("rxd_swift_plugin")
    public func plugin() -> UnsafeMutableRawPointer {
      Plugin(
        "\(name)", version: "0.1.0", summary: "Adds a text to events.", [CatalogueEntry(row: \(module).self)]
      ).handle
    }

    """
  }

  var swiftMakefile: String {
    """
    # The Swift runtime is in the library, and only its two names are seen outside.
    FLAGS := -c release -Xswiftc -static-stdlib -Xlinker -Bsymbolic -Xlinker --exclude-libs=ALL
    SCRATCH ?= .build

    # Put in place as a new file: rxd may have the old one loaded.
    \(name).so: Package.swift $(wildcard Sources/*/*.swift)
    \tswift build $(FLAGS) --scratch-path $(SCRATCH)
    \tinstall -m 0755 $(SCRATCH)/release/lib\(name).so $@

    .PHONY: clean
    clean:
    \trm -rf .build \(name).so

    """
  }
}
