#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ikebana/io/file.hpp"

// The part of Python's pickle format (pickletools.py) that describes a state dict. Nothing is
// executed: a call is a value that names a function and its arguments, and who reads the result
// decides which functions mean something.
namespace ikebana::detail {

struct pickle_value {
  enum class kind : unsigned char {
    none,
    boolean,
    integer,
    real,
    text,
    tuple,
    list,
    dict,
    global,     ///< `text` is the module, a space, and the name.
    call,       ///< items: a global and a tuple.
    persistent  ///< items: what the identifier is.
  };
  kind what = kind::none;
  std::int64_t number = 0;
  std::string text{};
  std::vector<std::size_t> items{};  ///< Indices of values; of a dict keys and values in turn.
};

/// Reads a pickle. Values are referred to by index. Time and memory are O(bytes). Throws io_error.
template <class>
class basic_unpickler {
 public:
  using kind = pickle_value::kind;

  basic_unpickler(const std::string& path, std::string_view text) : path_{path}, text_{text} {}

  const pickle_value& operator[](std::size_t i) const { return values_[i]; }

  /// The index of the result.
  std::size_t run() {
    for (;;) {
      const char op = take(1)[0];
      switch (op) {
        case '\x80':  // PROTO
          take(1);
          break;
        case '\x95':  // FRAME
          take(8);
          break;
        case '.':  // STOP
          return pop();
        case '(':  // MARK
          marks_.push_back(stack_.size());
          break;
        case '0':  // POP
          pop();
          break;
        case 'N':  // NONE
          push({});
          break;
        case '\x88':  // NEWTRUE
        case '\x89':  // NEWFALSE
          push({kind::boolean, op == '\x88'});
          break;
        case 'K':  // BININT1
          push({kind::integer, static_cast<std::int64_t>(number(1))});
          break;
        case 'M':  // BININT2
          push({kind::integer, static_cast<std::int64_t>(number(2))});
          break;
        case 'J':  // BININT
          push({kind::integer,
                std::int64_t{static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4)))}});
          break;
        case '\x8a':  // LONG1
          long_integer();
          break;
        case 'G':  // BINFLOAT
          take(8);
          push({kind::real});
          break;
        case 'X':  // BINUNICODE
          push({kind::text, 0, std::string(take(number(4)))});
          break;
        case '\x8c':  // SHORT_BINUNICODE
          push({kind::text, 0, std::string(take(number(1)))});
          break;
        case '}':  // EMPTY_DICT
          push({kind::dict});
          break;
        case ']':  // EMPTY_LIST
          push({kind::list});
          break;
        case ')':  // EMPTY_TUPLE
          push({kind::tuple});
          break;
        case '\x85':  // TUPLE1
        case '\x86':
        case '\x87':
          tuple(static_cast<std::size_t>(op - '\x85') + 1);
          break;
        case 't':  // TUPLE
          tuple(stack_.size() - mark());
          break;
        case 'c': {  // GLOBAL
          const std::string module(line());
          push({kind::global, 0, module + ' ' + std::string(line())});
          break;
        }
        case '\x93': {  // STACK_GLOBAL
          const pickle_value &name = values_[pop()], &module = values_[pop()];
          if (name.what != kind::text || module.what != kind::text || name.text.size() > 250 ||
              module.text.size() > 250)
            fail();
          push({kind::global, 0, module.text + ' ' + name.text});
          break;
        }
        case 'R': {  // REDUCE
          const std::size_t arguments = pop(), function = pop();
          if (values_[function].what != kind::global || values_[arguments].what != kind::tuple)
            fail();
          // An ordered dict is a dict.
          if (values_[function].text == "collections OrderedDict" &&
              values_[arguments].items.empty())
            push({kind::dict});
          else
            push({kind::call, 0, {}, {function, arguments}});
          break;
        }
        case 'Q':  // BINPERSID
          push({kind::persistent, 0, {}, {pop()}});
          break;
        case 'b':  // BUILD: attributes, such as _metadata of a state dict
          pop();
          if (stack_.empty() || values_[stack_.back()].what != kind::dict)
            fail_io(path_, "restores an object; only dicts of tensors are read");
          break;
        case 's':  // SETITEM
          set_items(stack_.size() < 2 ? stack_.size() : stack_.size() - 2);
          break;
        case 'u':  // SETITEMS
          set_items(mark());
          break;
        case 'a':  // APPEND
          append(stack_.size() < 1 ? stack_.size() : stack_.size() - 1);
          break;
        case 'e':  // APPENDS
          append(mark());
          break;
        case 'q':  // BINPUT
          memo_[number(1)] = top();
          break;
        case 'r':  // LONG_BINPUT
          memo_[number(4)] = top();
          break;
        case '\x94':  // MEMOIZE
          memo_[memo_.size()] = top();
          break;
        case 'h':  // BINGET
          get(number(1));
          break;
        case 'j':  // LONG_BINGET
          get(number(4));
          break;
        default:
          fail_io(path_, "has the pickle opcode " + std::to_string(static_cast<unsigned char>(op)) +
                             " at " + std::to_string(at_ - 1) + ", which no dict of tensors needs");
      }
    }
  }

 private:
  [[noreturn]] void fail() const {
    fail_io(path_, "has a damaged pickle at " + std::to_string(at_));
  }
  std::string_view take(std::uint64_t n) {
    if (n > text_.size() - at_) fail_io(path_, "has a pickle that ends too early");
    at_ += static_cast<std::size_t>(n);
    return text_.substr(at_ - static_cast<std::size_t>(n), static_cast<std::size_t>(n));
  }
  std::uint64_t number(std::size_t bytes) {
    const std::string_view text = take(bytes);
    std::uint64_t n = 0;
    for (std::size_t i = bytes; i-- > 0;) n = n << 8 | static_cast<unsigned char>(text[i]);
    return n;
  }
  std::string_view line() {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) fail();
    const std::string_view found = take(end - at_);
    take(1);
    return found;
  }
  void long_integer() {
    const std::uint64_t bytes = number(1);
    if (bytes > 8) fail_io(path_, "has an integer of " + std::to_string(bytes) + " bytes");
    std::uint64_t n = number(static_cast<std::size_t>(bytes));
    // The last byte has the sign.
    if (bytes > 0 && bytes < 8 && (n >> (8 * bytes - 1) & 1) != 0)
      n |= ~std::uint64_t{0} << 8 * bytes;
    push({kind::integer, static_cast<std::int64_t>(n)});
  }

  void push(pickle_value v) {
    stack_.push_back(values_.size());
    values_.push_back(std::move(v));
  }
  /// Values below a mark cannot be popped.
  std::size_t pop() {
    const std::size_t v = top();
    stack_.pop_back();
    return v;
  }
  std::size_t top() const {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail();
    return stack_.back();
  }
  std::size_t mark() {
    if (marks_.empty()) fail();
    const std::size_t at = marks_.back();
    marks_.pop_back();
    return at;
  }
  void get(std::uint64_t at) {
    const auto found = memo_.find(at);
    if (found == memo_.end()) fail();
    stack_.push_back(found->second);
  }
  void tuple(std::size_t n) {
    if (stack_.size() - (marks_.empty() ? 0 : marks_.back()) < n) fail();
    pickle_value v{kind::tuple};
    v.items.assign(stack_.end() - static_cast<std::ptrdiff_t>(n), stack_.end());
    stack_.resize(stack_.size() - n);
    push(std::move(v));
  }
  void set_items(std::size_t from) { add(from, kind::dict, 2); }
  void append(std::size_t from) { add(from, kind::list, 1); }
  /// Moves the values from there on into the one before.
  void add(std::size_t from, kind to, std::size_t together) {
    const std::size_t lowest = marks_.empty() ? 0 : marks_.back();
    if (from <= lowest || from > stack_.size() || (stack_.size() - from) % together != 0) fail();
    pickle_value& v = values_[stack_[from - 1]];
    if (v.what != to) fail();
    v.items.insert(v.items.end(), stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    stack_.resize(from);
  }

  const std::string& path_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<pickle_value> values_;
  std::vector<std::size_t> stack_, marks_;
  std::unordered_map<std::uint64_t, std::size_t> memo_;
};

}  // namespace ikebana::detail
