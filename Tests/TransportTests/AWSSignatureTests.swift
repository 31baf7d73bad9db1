import PipelineCore
import PipelineHost
import Testing

@testable import Transport

/// Signatures of AWS, version 4.
@Suite struct AWSSignatureTests {
  private static let credentials = HTTPOptions.AWSSigV4(
    region: "us-east-1", service: "service", accessKey: Secret("AKIDEXAMPLE"),
    secretKey: Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))

  private static let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

  /// The signatures of AWS's published test suite.
  @Test(
    arguments: [
      ("GET", "/", "", [], "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
      ("POST", "/", "", [], "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
      (
        "GET", "/", "Param2=value2&Param1=value1", [],
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"
      ),
    ] as [(String, String, String, [HTTPHeader], String)])
  func agreesWithThePublishedSignatures(
    _ method: String, _ path: String, _ query: String, _ headers: [HTTPHeader], _ signature: String
  ) {
    let request = AWSSignature(
      method: method, path: path, query: query,
      headers: [HTTPHeader("Host", "example.amazonaws.com"), HTTPHeader("X-Amz-Date", "20150830T123600Z")] + headers,
      payload: Self.empty)
    #expect(
      request.authorization(Self.credentials, "20150830T123600Z")
        == "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        + "SignedHeaders=host;x-amz-date, Signature=\(signature)")
  }

  /// The example in the documentation: listing the users of IAM.
  @Test func agreesWithTheDocumentation() {
    var credentials = Self.credentials
    credentials.service = "iam"
    let request = AWSSignature(
      method: "GET", path: "/", query: "Action=ListUsers&Version=2010-05-08",
      headers: [
        HTTPHeader("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"),
        HTTPHeader("Host", "iam.amazonaws.com"), HTTPHeader("X-Amz-Date", "20150830T123600Z"),
      ], payload: Self.empty)
    #expect(
      request.authorization(credentials, "20150830T123600Z")?.hasSuffix(
        "SignedHeaders=content-type;host;x-amz-date, Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
      )
        == true)
  }

  @Test(
    arguments: [
      (0, "19700101T000000Z"), (1_440_938_160, "20150830T123600Z"), (951_782_399, "20000228T235959Z"),
      (951_782_400, "20000229T000000Z"), (4_107_542_400, "21000301T000000Z"),
    ] as [(Int64, String)]) func timesAreThoseOfTheCalendar(_ seconds: Int64, _ text: String)
  {
    #expect(AWSSignature.timestamp(seconds) == text)
  }

  /// The client sends exactly what it has signed: the receiver computes the same signature from the received bytes.
  @Test(arguments: ["s3", "es"]) func aReceiverFindsTheSameSignature(_ service: String) async throws {
    let server = try ScriptedServer { connection in
      while let (head, body) = connection.message() {
        let lines = head.split(separator: "\r\n").map(String.init)
        let target = lines[0].split(separator: " ")[1].split(separator: "?", maxSplits: 1).map(String.init)
        var headers: [String: String] = [:]
        for line in lines.dropFirst() {
          let pair = line.split(separator: ":", maxSplits: 1)
          headers[pair[0].lowercased()] = pair.count > 1 ? String(pair[1].drop { $0 == " " }) : ""
        }
        let given = headers["authorization"] ?? ""
        let signed =
          given.split(separator: "SignedHeaders=").last?.split(separator: ",").first?.split(separator: ";") ?? []
        var credentials = Self.credentials
        credentials.service = service
        let expected = AWSSignature(
          method: String(lines[0].split(separator: " ")[0]), path: target[0], query: target.count > 1 ? target[1] : "",
          headers: signed.map { HTTPHeader(String($0), headers[String($0)] ?? "(missing)") },
          payload: AWSSignature.sha256(body) ?? ""
        ).authorization(credentials, headers["x-amz-date"] ?? "")
        let isWhole = ["host", "x-amz-content-sha256", "x-amz-security-token", "content-type"].allSatisfy {
          signed.contains(Substring($0))
        }
        let verdict = expected == given && isWhole ? "200 OK" : "403 Forbidden"
        connection.send("HTTP/1.1 \(verdict)\r\nContent-Length: 0\r\n\r\n")
      }
    }
    defer { server.stop() }
    let client = CurlClient()
    var credentials = Self.credentials
    credentials.service = service
    credentials.sessionToken = Secret("session")
    for path in ["/", "/a%20b/c:d?z=1&a=%2Fx&a=", "/ü?q=a+b"] {
      var request = HTTPRequest(
        method: "PUT", url: server.url + path,
        headers: [HTTPHeader("Content-Type", "text/plain;  x"), HTTPHeader("X-Own", "1")],
        body: Array("body".utf8))
      request.options.auth = .awsSigV4(credentials)
      let answer = try await client.answer(request).get()
      #expect(answer.status == 200, "\(path)")
    }
  }
}
