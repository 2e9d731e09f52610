#include "kernels/models/graph/value_places.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace runnel::inference {
namespace {

class Sharing {
 public:
  Sharing(const Int8Graph& graph, const std::vector<int32_t>& computed_in)
      : graph_(graph),
        computed_in_(computed_in),
        last_read_(graph.nodes.size(), -1),
        holder_(graph.nodes.size(), -1) {
    places_.of.assign(graph.nodes.size(), -1);
    places_.elements.assign(graph.nodes.size(), 0);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (int k = 0; k < graph.nodes[i].node.input_count(); ++k) {
        int32_t& last = last_read_[graph.nodes[i].node.inputs[k]];
        last = std::max(last, TimeOf(i));
      }
    }
  }

  ValuePlaces Run() {
    // By step: the addition that it computes.
    std::vector<int32_t> addition(graph_.nodes.size(), -1);
    for (size_t i = 0; i < addition.size(); ++i) {
      if (computed_in_[i] >= 0) addition[computed_in_[i]] = static_cast<int32_t>(i);
    }
    for (size_t step = 0; step < addition.size(); ++step) {
      if (computed_in_[step] >= 0) continue;
      Place(addition[step] >= 0 ? addition[step] : step);
      FreeInputs(step, step);
      if (addition[step] >= 0) FreeInputs(addition[step], step);
    }
    return std::move(places_);
  }

 private:
  int32_t TimeOf(size_t node) const {
    return computed_in_[node] >= 0 ? computed_in_[node] : static_cast<int32_t>(node);
  }

  void FreeInputs(size_t node, size_t step) {
    for (int k = 0; k < graph_.nodes[node].node.input_count(); ++k) {
      const int32_t value = graph_.nodes[node].node.inputs[k];
      const int32_t place = places_.of[value];
      if (last_read_[value] != static_cast<int32_t>(step) || place < 0) continue;
      if (holder_[place] != value) continue;  // a later value lies there
      holder_[place] = -1;
      free_.push_back(place);
    }
  }

  void Place(size_t node) {
    const int64_t elements = graph_.nodes[node].node.outputs();
    int32_t place = static_cast<int32_t>(node);
    if (computed_in_[node] >= 0 && node + 1 < graph_.nodes.size()) {
      const std::array<int32_t, 2>& inputs = graph_.nodes[node].node.inputs;
      const int32_t other = inputs[0] == computed_in_[node] ? inputs[1] : inputs[0];
      if (last_read_[other] == TimeOf(node)) place = places_.of[other];
    }
    if (place == static_cast<int32_t>(node) && node + 1 < graph_.nodes.size()) {
      place = TakeFree(elements, place);
    }
    places_.of[node] = place;
    holder_[place] = static_cast<int32_t>(node);
    places_.elements[place] = std::max(places_.elements[place], elements);
  }

  // The last one to become free that is large enough, else the largest.
  int32_t TakeFree(int64_t elements, int32_t otherwise) {
    if (free_.empty()) return otherwise;
    const auto fits = [&](int32_t place) { return places_.elements[place] >= elements; };
    const auto last = std::find_if(free_.rbegin(), free_.rend(), fits);
    const auto smaller = [&](int32_t a, int32_t b) {
      return places_.elements[a] < places_.elements[b];
    };
    const auto taken = last != free_.rend() ? std::prev(last.base())
                                            : std::max_element(free_.begin(), free_.end(), smaller);
    const int32_t place = *taken;
    free_.erase(taken);
    return place;
  }

  const Int8Graph& graph_;
  const std::vector<int32_t>& computed_in_;
  std::vector<int32_t> last_read_;  // by node: the step
  std::vector<int32_t> holder_;     // by place: the value that lies there, or -1
  std::vector<int32_t> free_;       // in the order in which they became free
  ValuePlaces places_;
};

}  // namespace

ValuePlaces ShareMemory(const Int8Graph& graph, const std::vector<int32_t>& computed_in) {
  return Sharing(graph, computed_in).Run();
}

ValuePlaces OwnMemory(const Int8Graph& graph) {
  ValuePlaces places;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    places.of.push_back(static_cast<int32_t>(i));
    places.elements.push_back(graph.nodes[i].node.outputs());
  }
  return places;
}

}  // namespace runnel::inference
