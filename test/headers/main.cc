// The compiler and the linker have already done what this test checks.
int main() {}
