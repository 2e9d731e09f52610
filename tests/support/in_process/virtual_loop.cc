#include "tests/support/in_process/virtual_loop.h"

#include <algorithm>
#include <utility>

namespace runnel {

void VirtualLoop::PostAfter(int64_t delay_ns, Task task) {
  if (core_->ended) return;
  const uint64_t number = core_->next++;
  core_->tasks.emplace(number, std::move(task));
  network_->ScheduleAt(network_->now_ns() + std::max<int64_t>(delay_ns, 0), [core = core_, number] {
    if (core->ended) return;
    core->due.push_back(number);
    RunDue(*core);
  });
}

// A task may end the loop, and freeze it; it never runs another one.
void VirtualLoop::RunDue(Core& core) {
  while (!core.frozen && !core.due.empty()) {
    auto task = core.tasks.extract(core.due.front());
    core.due.pop_front();
    task.mapped()();
  }
}

void VirtualLoop::SetFrozen(bool frozen) {
  core_->frozen = frozen;
  if (frozen) return;
  network_->ScheduleAt(network_->now_ns(), [core = core_] { RunDue(*core); });
}

void VirtualLoop::End() {
  core_->ended = true;
  core_->due.clear();
  // What they hold may post when it goes.
  const auto tasks = std::exchange(core_->tasks, {});
}

}  // namespace runnel
