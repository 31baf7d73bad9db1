/// A test expected an item that is missing.
package struct MissingItem: Error, CustomStringConvertible {
  let index: Int
  let count: Int
  package var description: String { "there is no item \(index): there are \(count)" }
}

extension Collection {
  /// The item at that index; throws if there is none, so that only this test fails: indexing would end the whole test
  /// process.
  package func item(_ index: Int) throws -> Element {
    guard let found = dropFirst(index).first else { throw MissingItem(index: index, count: count) }
    return found
  }
}
