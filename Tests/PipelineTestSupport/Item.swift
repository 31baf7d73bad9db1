/// A test looked for something that did not come.
package struct MissingItem: Error, CustomStringConvertible {
  let index: Int
  let count: Int
  package var description: String { "there is no item \(index): there are \(count)" }
}

extension Collection {
  /// The item with that number, from 0; an error if there is none. A test that finds less than it expects fails; indexing would end all tests.
  package func item(_ index: Int) throws -> Element {
    guard let found = dropFirst(index).first else { throw MissingItem(index: index, count: count) }
    return found
  }
}
