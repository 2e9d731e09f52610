#pragma once

// Commands and their flags over CLI11, whose header takes ten seconds a file to compile: only what
// reads the command line itself sees it.

#include <cstddef>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace runnel {

// A flag or argument of a command: a handle, valid as long as the program's parser. Each call gives
// the flag again.
class Flag {
 public:
  explicit Flag(CLI::Option* option) : option_(option) {}

  Flag Required() const;
  // --help says the value that it has without being given.
  Flag ShowDefault() const;
  // What --help calls its value.
  Flag ValueNamed(const std::string& name) const;
  // Several values stand in one word, with commas between them.
  Flag WithCommas() const;
  // One value each time that it is given.
  Flag OneEachTime() const;

  // T: int, int64_t, double.
  template <typename T>
  Flag Between(T least, T most) const;
  // 1 to 1,000,000,000.
  Flag Count() const;
  Flag Positive() const;
  Flag NotNegative() const;
  Flag OneOf(const std::vector<std::string>& words) const;

 private:
  CLI::Option* option_;
};

// A command, or the program that has the commands: a handle, valid as long as the program's parser.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  Command AddCommand(const std::string& name, const std::string& about) const;
  // A flag, or an argument where the name has no dashes. `value` must outlive the parsing. T:
  // std::string, int, int64_t, uint64_t, double, std::optional of std::string or int64_t,
  // std::vector of std::string, int64_t or double.
  template <typename T>
  Flag Add(const std::string& name, T& value, const std::string& help) const;
  // A flag without a value: true where it is given.
  Flag AddSwitch(const std::string& name, bool& value, const std::string& help) const;
  // What stands at the end of --help.
  void Footer(const std::string& text) const;

  // How often the flag was given.
  size_t TimesGiven(const std::string& name) const;
  CLI::App& app() const { return *app_; }

 private:
  CLI::App* app_;
};

}  // namespace runnel
