#include "central/cli/command.h"

#include <cmath>
#include <cstdint>
#include <optional>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// A number of type T that `allowed` takes. CLI11's own checks write bounds of doubles with six
// decimals, and where there is no bound the largest double, in 309 digits.
template <typename T, typename AllowedFn>
CLI::Validator NumberThat(const AllowedFn& allowed, const std::string& must,
                          const std::string& description) {
  const auto check = [allowed, must](const std::string& text) {
    T value = 0;
    if (CLI::detail::lexical_cast(text, value) && allowed(value)) return std::string();
    return absl::StrCat("must be ", must, ", not ", text);
  };
  return CLI::Validator(check, description);
}

}  // namespace

Flag Flag::Required() const {
  option_->required();
  return *this;
}

Flag Flag::ShowDefault() const {
  option_->capture_default_str();
  return *this;
}

Flag Flag::ValueNamed(const std::string& name) const {
  option_->type_name(name);
  return *this;
}

Flag Flag::WithCommas() const {
  option_->delimiter(',');
  return *this;
}

Flag Flag::OneEachTime() const {
  option_->allow_extra_args(false);
  return *this;
}

template <typename T>
Flag Flag::Between(T least, T most) const {
  option_->check(NumberThat<T>([=](T value) { return value >= least && value <= most; },
                               absl::StrCat("from ", least, " to ", most),
                               absl::StrCat("in [", least, " - ", most, "]")));
  return *this;
}
template Flag Flag::Between(int, int) const;
template Flag Flag::Between(int64_t, int64_t) const;
template Flag Flag::Between(double, double) const;

Flag Flag::Count() const { return Between(int64_t{1}, int64_t{1'000'000'000}); }

Flag Flag::Positive() const {
  option_->check(NumberThat<double>([](double value) { return value > 0 && std::isfinite(value); },
                                    "a number above 0", "POSITIVE"));
  return *this;
}

Flag Flag::NotNegative() const {
  option_->check(NumberThat<double>([](double value) { return value >= 0 && std::isfinite(value); },
                                    "a number of at least 0", "NONNEGATIVE"));
  return *this;
}

Flag Flag::OneOf(const std::vector<std::string>& words) const {
  option_->check(CLI::IsMember(words));
  return *this;
}

Command Command::AddCommand(const std::string& name, const std::string& about) const {
  return Command(app_->add_subcommand(name, about));
}

template <typename T>
Flag Command::Add(const std::string& name, T& value, const std::string& help) const {
  return Flag(app_->add_option(name, value, help));
}
template Flag Command::Add(const std::string&, std::string&, const std::string&) const;
template Flag Command::Add(const std::string&, int&, const std::string&) const;
template Flag Command::Add(const std::string&, int64_t&, const std::string&) const;
template Flag Command::Add(const std::string&, uint64_t&, const std::string&) const;
template Flag Command::Add(const std::string&, double&, const std::string&) const;
template Flag Command::Add(const std::string&, std::optional<std::string>&,
                           const std::string&) const;
template Flag Command::Add(const std::string&, std::optional<int64_t>&, const std::string&) const;
template Flag Command::Add(const std::string&, std::vector<std::string>&, const std::string&) const;
template Flag Command::Add(const std::string&, std::vector<int64_t>&, const std::string&) const;
template Flag Command::Add(const std::string&, std::vector<double>&, const std::string&) const;

Flag Command::AddSwitch(const std::string& name, bool& value, const std::string& help) const {
  return Flag(app_->add_flag(name, value, help));
}

void Command::Footer(const std::string& text) const { app_->footer(text); }

size_t Command::TimesGiven(const std::string& name) const { return app_->count(name); }

}  // namespace runnel
