import Foundation
import PipelineCore
import PipelineRuntime
import Testing

/// Secrets are files of directories.
@Suite struct SecretFileTests {
  @Test(
    arguments: [("", "is empty"), ("\n", "is empty"), ("\r\n", "is empty"), ("x\n", nil), ("x", nil)]
      as [(String, String?)])
  func anEmptySecretIsAnError(_ content: String, _ reason: String?) throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "rxd-secret-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let file = folder.appending(path: "token").path
    try Data(content.utf8).write(to: URL(fileURLWithPath: file))
    try FileManager.default.setAttributes([.posixPermissions: 0o600], ofItemAtPath: file)
    var inputs = PipelineLoader.Inputs()
    inputs.secretDirectories = [folder.path]
    let text =
      "sources: { s: { http: { url: 'http://127.0.0.1/', auth: { bearer: '${secret:token}' } } } }\nsinks: { o: { from: s, discard: {} } }"
    let found = PipelineLoader(inputs).compile("a.yaml", SourceText(name: "a.yaml", text: text)).diagnostics
    if let reason {
      #expect(found.contains { $0.code.name == "RX703" && $0.message.contains(reason) }, "\(found.map(\.line))")
    } else {
      #expect(!found.contains { $0.severity == .error }, "\(found.map(\.line))")
    }
  }

  /// A user who may write to a secret's file controls the secret.
  @Test(
    arguments: [
      (0o600, nil), (0o640, nil), (0o440, nil), (0o604, "every user"), (0o602, "every user"),
      (0o660, "others than its owner"),
    ]
      as [(Int, String?)])
  func othersMayNotWriteASecret(_ mode: Int, _ reason: String?) throws {
    let folder = FileManager.default.temporaryDirectory.appending(path: "rxd-secret-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let file = folder.appending(path: "token").path
    try Data("x\n".utf8).write(to: URL(fileURLWithPath: file))
    // The group contains only the file's owner: only root can give a file to another group.
    if mode & 0o020 != 0 {
      guard geteuid() == 0 else { return }
      try #require(chown(file, 0, 65_534) == 0)
    }
    try #require(chmod(file, mode_t(mode)) == 0)
    var inputs = PipelineLoader.Inputs()
    inputs.secretDirectories = [folder.path]
    let text =
      "sources: { s: { http: { url: 'http://127.0.0.1/', auth: { bearer: '${secret:token}' } } } }\nsinks: { o: { from: s, discard: {} } }"
    let found = PipelineLoader(inputs).compile("a.yaml", SourceText(name: "a.yaml", text: text)).diagnostics
    if let reason {
      #expect(found.contains { $0.code.name == "RX703" && $0.message.contains(reason) }, "\(found.map(\.line))")
    } else {
      #expect(!found.contains { $0.severity == .error }, "\(found.map(\.line))")
    }
  }
}
