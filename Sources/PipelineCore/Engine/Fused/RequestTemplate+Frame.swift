extension RequestTemplate {
  /// The request for the loaded event. A failure of kind `expression` names the failing expression; one of kind
  /// `source` says why a request with these texts is not allowed.
  package func render(_ frame: EventFrame) -> Result<HTTPRequest, SignalFailure> {
    do throws(SignalFailure) {
      var inserted: [Range<Int>] = []
      let address = URLConfinement.encoded(
        try url.text(frame, inserted: &inserted), &inserted, url.program?.insertions ?? [])
      if let problem = URLConfinement.problem(address, inserted: inserted) {
        throw SignalFailure(.source, problem, at: url.location)
      }
      var request = HTTPRequest(method: method, url: String(decoding: address, as: UTF8.self))
      for header in headers.entries {
        let value = try header.value.text(frame)
        if value.contains(where: Table<TemplateParameter>.isForbidden) {
          throw SignalFailure(
            .source, "the header '\(header.name)' would contain a line break or control character",
            at: header.value.location)
        }
        request.headers.append(
          HTTPHeader(header.name, String(decoding: value, as: UTF8.self), isSecret: header.value.containsSecret))
      }
      if body.isGiven { request.body = try body.text(frame) }
      if url.containsSecret {
        var shown: [Range<Int>] = []
        let text = try url.shownText(frame, inserted: &shown)
        request.maskedURL = String(
          decoding: URLConfinement.encoded(text, &shown, url.program?.shown.insertions ?? []), as: UTF8.self)
      }
      if body.containsSecret { request.maskedBody = try body.text(frame, isShown: true) }
      return .success(request)
    } catch {
      return .failure(error)
    }
  }
}
