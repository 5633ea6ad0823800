// How a kernel of any signature is called from an array of pointers to its arguments, as
// cuLaunchKernel does. Every library compiles this, so that it does without the larger headers.
#pragma once
#include <type_traits>
#include <utility>

#include "runtime.h"

struct __half;

namespace emulation {

template <typename T, typename U = typename std::remove_cv<T>::type>
constexpr char kind_of = std::is_same<U, bool>::value         ? 'b'
                         : std::is_same<U, __half>::value     ? 'f'
                         : std::is_floating_point<U>::value   ? 'f'
                         : std::is_unsigned<U>::value         ? 'u'
                         : std::is_integral<U>::value         ? 'i'
                                                              : 'V';

template <typename T>
struct Described {
    static constexpr Parameter parameter = {Role::value, kind_of<T>, sizeof(T)};
};
template <typename T>
struct Described<T *> {
    static constexpr Role role = std::is_const<T>::value ? Role::input : Role::output;
    static constexpr Parameter parameter = {role, kind_of<T>, sizeof(T)};
};

template <typename... Parameters>
struct Caller {
    using Function = void (*)(Parameters...);
    static constexpr Parameter parameters[] = {Described<Parameters>::parameter..., {}};

    template <std::size_t... I>
    __attribute__((no_sanitize("thread"), no_sanitize("undefined"))) static void unpack(
        Function function, void **arguments, std::index_sequence<I...>) {
        function(*static_cast<typename std::remove_reference<Parameters>::type *>(arguments[I])...);
    }
    __attribute__((no_sanitize("thread"), no_sanitize("undefined"))) static void call(
        void (*function)(), void **arguments) {
        unpack(reinterpret_cast<Function>(function), arguments,
               std::index_sequence_for<Parameters...>());
    }
};

template <typename... Parameters>
Kernel kernel(const char *name, void (*function)(Parameters...)) {
    using Its = Caller<Parameters...>;
    return {name, reinterpret_cast<void (*)()>(function), Its::call, Its::parameters,
            sizeof...(Parameters)};
}

}  // namespace emulation
