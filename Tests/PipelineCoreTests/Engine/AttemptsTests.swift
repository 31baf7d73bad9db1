import PipelineCore
import Testing

@Suite struct AttemptsTests {
  @Test func pausesGrowAndAreShortened() {
    var attempts = Attempts(.milliseconds(100), most: .milliseconds(300))
    #expect(attempts.succeed() == 0)
    var longest: [Int64] = []
    for number in 1...4 {
      #expect(attempts.fail() == (number == 1))
      let most = attempts.pause(.max).nanoseconds
      #expect(attempts.pause(0).nanoseconds * 2 <= most + 2 && attempts.pause(0).nanoseconds * 2 >= most - 2)
      longest.append(most / 1_000_000)
    }
    #expect(longest.map { ($0 + 1) / 10 * 10 } == [100, 200, 300, 300], "\(longest)")
    #expect(attempts.pause(0, asked: .seconds(5)) == .seconds(5))
    #expect(attempts.succeed() == 4)
    #expect(attempts.succeed() == 0)
    var tiny = Attempts(.zero, most: .zero)
    tiny.fail()
    #expect(tiny.pause(0) == .milliseconds(1))
  }
}
