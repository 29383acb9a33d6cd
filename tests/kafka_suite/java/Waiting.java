package ottla.kafkasuite;

/** Waits for a condition that only a question can show. */
final class Waiting {
    private static final long PAUSE_MS = 20;

    private Waiting() {
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    /** Returns when the condition holds. An IllegalStateException of the condition ends the wait. */
    static void until(String what, long timeoutMs, Condition condition) {
        long deadline = System.currentTimeMillis() + timeoutMs;
        Exception last = null;
        while (true) {
            try {
                if (condition.holds()) {
                    return;
                }
            } catch (IllegalStateException error) {
                throw error;
            } catch (Exception error) {
                last = error;
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("Not within " + timeoutMs + " ms: " + what, last);
            }
            try {
                Thread.sleep(PAUSE_MS);
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("Interrupted while waiting: " + what, error);
            }
        }
    }
}
