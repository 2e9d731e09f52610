// A target without libFuzzer: its seeds, and as many changed ones as its argument says.
// RUNNEL_FUZZ_SEED chooses other changes, RUNNEL_FUZZ_FACTOR so many times as many. A path as a
// second argument: that input alone.

#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "proto/base/random.h"
#include "tests/fuzz/environment.h"
#include "tests/fuzz/fuzz_target.h"

namespace runnel::fuzz {
namespace {

class Changes {
 public:
  Changes(uint64_t seed, uint64_t round) : random_(seed, RandomPurpose::kTest, round, 0) {}

  // Of one input, sometimes with a piece of another one.
  std::string Apply(std::string input, const std::string& other) {
    for (uint32_t left = 1 + Below(4); left > 0; --left) Change(input, other);
    return input;
  }

 private:
  uint32_t Below(size_t bound) {
    return random_.Below(next_++, static_cast<uint32_t>(std::max<size_t>(bound, 1)));
  }
  void Change(std::string& input, const std::string& other) {
    const size_t at = Below(input.size() + 1), length = Below(32);
    switch (Below(6)) {
      case 0:
        input.resize(at);
        break;
      case 1:
        input.insert(at, length, static_cast<char>(Below(256)));
        break;
      case 2:
        input.erase(at, length);
        break;
      case 3:
        input.insert(at, other.substr(Below(other.size()), 4 * length));
        break;
      case 4:
        // Where a length or a number may stand.
        for (size_t i = at; i < std::min(input.size(), at + 1 + length % 8); ++i)
          input[i] = length % 2 == 0 ? '\xff' : '9';
        break;
      default:
        if (at < input.size()) input[at] = static_cast<char>(Below(256));
    }
  }

  CounterRandom random_;
  uint64_t next_ = 0;
};

int Run(uint64_t rounds) {
  const uint64_t seed = FromEnvironment("RUNNEL_FUZZ_SEED", 1);
  rounds *= FromEnvironment("RUNNEL_FUZZ_FACTOR", 1);
  std::printf("RUNNEL_FUZZ_SEED=%llu, %llu inputs\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(rounds));
  std::fflush(stdout);
  const std::vector<std::string> seeds = Seeds();
  Require(!seeds.empty(), "there are seeds");
  for (const std::string& one : seeds) Try(one);
  for (uint64_t round = 0; round < rounds; ++round) {
    const std::string& other = seeds[(round / seeds.size()) % seeds.size()];
    Try(Changes(seed, round).Apply(seeds[round % seeds.size()], other));
  }
  return 0;
}

}  // namespace
}  // namespace runnel::fuzz

int main(int argc, char** argv) {
  if (argc > 2) {
    std::ifstream file(argv[2], std::ios::binary);
    runnel::fuzz::Try(std::string(std::istreambuf_iterator<char>(file), {}));
    return 0;
  }
  uint64_t rounds = 1000;
  runnel::fuzz::Require(argc < 2 || absl::SimpleAtoi(argv[1], &rounds), "a number of inputs");
  return runnel::fuzz::Run(rounds);
}
