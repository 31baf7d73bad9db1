import Glibc
import PipelineCore

/// A JSON parser for each thread.
enum NativeParser {
  private static let key: pthread_key_t = {
    var key = pthread_key_t()
    pthread_key_create(&key) { pointer in
      if let pointer { Unmanaged<JSONParser>.fromOpaque(pointer).release() }
    }
    return key
  }()

  static var current: JSONParser {
    if let known = pthread_getspecific(key) { return Unmanaged<JSONParser>.fromOpaque(known).takeUnretainedValue() }
    let parser = JSONParser()
    pthread_setspecific(key, Unmanaged.passRetained(parser).toOpaque())
    return parser
  }
}
