#include "central/planning/live/plan_search.h"

#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <future>
#include <utility>

namespace runnel {
namespace {

// Priority for setpriority: a stage on central's host has about nine times this share of a busy
// processor.
constexpr int kNice = 10;

double ThreadSeconds() {
  timespec time{};
  if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

SearchAnswer Answer(const PlanSearch::SearchFn& search) {
  const double begin = ThreadSeconds();
  SearchAnswer answer{search()};
  answer.processor_seconds = ThreadSeconds() - begin;
  return answer;
}

class BackgroundSearch final : public PlanSearch {
 public:
  void Begin(SearchFn search) override {
    answer_ = std::async(std::launch::async, [search = std::move(search)] {
      // On Linux a thread has a priority of its own. Without the right to lower it, it stays as it
      // is.
      static_cast<void>(setpriority(PRIO_PROCESS, 0, kNice));
      return Answer(search);
    });
  }
  bool under_way() const override { return answer_.valid(); }
  std::optional<SearchAnswer> TakeAnswer() override {
    const bool is_done =
        answer_.valid() && answer_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    if (!is_done) return std::nullopt;
    return answer_.get();
  }

 private:
  std::future<SearchAnswer> answer_;  // its destructor waits
};

class ImmediateSearch final : public PlanSearch {
 public:
  void Begin(SearchFn search) override { answer_ = Answer(search); }
  bool under_way() const override { return answer_.has_value(); }
  std::optional<SearchAnswer> TakeAnswer() override { return std::exchange(answer_, std::nullopt); }

 private:
  std::optional<SearchAnswer> answer_;
};

}  // namespace

std::unique_ptr<PlanSearch> MakeBackgroundSearch() { return std::make_unique<BackgroundSearch>(); }

std::unique_ptr<PlanSearch> MakeImmediateSearch() { return std::make_unique<ImmediateSearch>(); }

}  // namespace runnel
